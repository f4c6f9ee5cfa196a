// core/error.h -- every failure that a person can cause is one exception type, whose text says what
// was given, what was expected and how to mend it.
#pragma once
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace minim {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value as people read it: a NaN without the sign that it happens to have.
template <class T>
decltype(auto) printable(const T& v) {
  if constexpr (std::is_floating_point_v<T>)
    return v != v ? std::numeric_limits<T>::quiet_NaN() : v;
  else
    return (v);
}

/// Throws Error with the arguments streamed together.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << printable(parts));
  throw Error(text.str());
}

}  // namespace minim
