// core/number.h -- numbers of the language: as they were written, and whether a dtype can hold
// them.
#pragma once
#include <cmath>
#include <cstdint>

#include "minim/core/dtype.h"

namespace minim::detail {

/// What a number of the language may be: bool, an integer or a float of any width. A pointer is
/// none, though C++ would make a bool of it.
template <class T>
concept Arithmetic =
    std::is_arithmetic_v<T> || std::is_same_v<T, minim::f16> || std::is_same_v<T, minim::bf16>;

/// A number of the language; an integer keeps its 64 bits.
class Number {
 public:
  /// @throws Error for an unsigned integer that i64 does not hold.
  template <Arithmetic T>
  constexpr Number(T v) {
    if constexpr (std::is_same_v<T, bool>) {
      dtype_ = DType::boolean, integer_ = v;
    } else if constexpr (std::is_integral_v<T>) {
      if (v > T(0) && uint64_t(v) > uint64_t(std::numeric_limits<int64_t>::max()))
        fail("the number ", +v, " does not fit i64, whose largest value is 9223372036854775807");
      dtype_ = DType::i64, integer_ = int64_t(v);
    } else {
      real_ = double(v);
    }
  }
  /// boolean, i64 or f64
  constexpr DType dtype() const { return dtype_; }
  constexpr bool is_real() const { return dtype_ == DType::f64; }
  constexpr int64_t integer() const { return integer_; }
  /// Rounded where it is an integer beyond 2^53.
  constexpr double real() const { return is_real() ? real_ : double(integer_); }

  /// As a cast of its dtype to that of T does.
  template <class T>
  constexpr T converted() const {
    return is_real() ? convert_to<T>(real_) : convert_to<T>(integer_);
  }
  /// Whether T holds it: for integers and bool exactly, and a float as far as its range goes.
  template <class T>
  bool fits() const {
    if constexpr (std::is_same_v<T, bool>)
      return real() == 0 || real() == 1;
    else if constexpr (std::is_integral_v<T>)
      return std::trunc(real()) == real() && fits_truncated<T>();
    else if (is_real())
      return !std::isfinite(real_) || std::isfinite(double(converted<T>()));
    const double v = double(converted<T>());
    return std::fabs(v) < 0x1p63 && int64_t(v) == integer_;
  }

  /// The same for integers, of what is left without its fraction.
  template <class T>
  bool fits_truncated() const {
    constexpr double most = 2 * double(std::numeric_limits<T>::max() / 2 + 1);  // exact
    if (!is_real())
      return integer_ < 0 ? integer_ >= int64_t(std::numeric_limits<T>::min())
                          : uint64_t(integer_) <= uint64_t(std::numeric_limits<T>::max());
    return std::trunc(real_) >= double(std::numeric_limits<T>::min()) && real_ < most;
  }

 private:
  DType dtype_ = DType::f64;
  union {
    int64_t integer_;
    double real_;
  };
};
std::ostream& operator<<(std::ostream& out, const Number& v);

/// Whether a finite number stays finite when it is rounded to a float of that dtype, or truncated
/// lies in the range of the integers; NaN and infinities fit floats alone. bool takes all.
bool fits(const Number& v, DType dtype);
/// check_number where it is not an ordinary number of the dtype.
void check_unusual(const char* op, const Number& v, DType dtype, bool shown, const char* kind,
                   const char* name);
/// @throws Error naming the op, the number and the dtype where it does not fit. Warns where it is
/// not 0 but becomes 0 and is `shown`: in a result as it is, where a 0 says something else.
/// @param kind what the number is, as in: operand 'y'
inline void check_number(const char* op, const Number& v, DType dtype, bool shown = true,
                         const char* kind = "", const char* name = "") {
  const DTypeInfo& d = info(dtype);
  const double size = std::fabs(v.real());
  if (d.category == Category::floating &&
      (size == 0 || (size >= d.tiniest && size <= d.max) || std::isinf(size)))
    return;
  check_unusual(op, v, dtype, shown, kind, name);
}

}  // namespace minim::detail
