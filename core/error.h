// core/error.h -- every failure that a person can cause is one exception type, whose text says what
// was given, what was expected and how to mend it.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace minim {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Error with the arguments streamed together.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

}  // namespace minim
