// models/parse_json.h -- JSON from files that anybody may have written: nothing in it may exhaust
// the stack, and a number that does not fit is an error.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "minim/core/error.h"

namespace minim::models {

/// @throws Error when it is nested deeper than 16; what nlohmann throws on broken JSON.
inline nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, [](int depth, auto, auto&) {
    if (depth > 16) fail("its JSON is nested deeper than 16");
    return true;
  });
}

/// object[key], a whole number of at least `least`. @throws Error for anything else.
inline int64_t integer_in(const nlohmann::json& object, const char* key, int64_t least = 0) {
  const nlohmann::json& found = object.at(key);
  const bool fits = found.is_number_integer() &&
                    !(found.is_number_unsigned() && found.get<uint64_t>() > uint64_t(INT64_MAX));
  if (!fits || found.get<int64_t>() < least)
    fail("its ", key, " cannot be read: ", found.dump(), "; expected a number of at least ", least,
         " without a fraction");
  return found.get<int64_t>();
}

}  // namespace minim::models
