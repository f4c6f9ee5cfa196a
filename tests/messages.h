// tests/messages.h -- what an error says.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "minim/core/error.h"

namespace minim::test {

/// The text of the Error that `act` throws; "" when it throws none.
inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void check_says(const std::string& message, const std::vector<std::string>& parts) {
  CAPTURE(message);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != message.npos);
  }
}

}  // namespace minim::test
