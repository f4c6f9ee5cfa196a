// models/json.h -- JSON from files that anybody may have written: nothing in it may exhaust the
// stack, and a number that does not fit is an error; and JSON written where memory may end.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "minim/core/error.h"

namespace minim::models {

/// The text of an object, member by member, without a value that has parts: nlohmann's end the
/// process where memory ends, as their destructors make lists.
class JsonText {
 public:
  /// @param json a value's text
  JsonText& add(std::string_view name, std::string_view json) {
    text_ += text_.size() > 1 ? "," : "";
    text_ += quoted(name) + ':';
    text_ += json;
    return *this;
  }
  template <class T>  // without parts
  JsonText& add_value(std::string_view name, const T& value) {
    return add(name, nlohmann::json(value).dump());
  }
  template <class List>
  JsonText& add_list(std::string_view name, const List& values) {
    std::string list;
    for (const auto& v : values) list += (list.empty() ? "" : ",") + nlohmann::json(v).dump();
    return add(name, '[' + list + ']');
  }
  std::string text() const { return text_ + '}'; }

 private:
  static std::string quoted(std::string_view s) { return nlohmann::json(s).dump(); }
  std::string text_ = "{";
};

/// Where memory ends, nlohmann's parser may end the process too.
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
