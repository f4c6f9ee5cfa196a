#include "minim/core/number.h"

#include <ostream>

#include "minim/core/warn.h"

namespace minim::detail {

std::ostream& operator<<(std::ostream& out, const Number& v) {
  return v.is_real() ? out << printable(v.real()) : out << v.integer();
}

bool fits(const Number& v, DType dtype) {
  return visit(dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, bool>)
      return true;
    else if constexpr (std::is_integral_v<T>)
      return v.fits_truncated<T>();
    else
      return !std::isfinite(v.real()) || std::isfinite(double(v.converted<T>()));
  });
}

void check_unusual(const char* op, const Number& v, DType dtype, bool shown, const char* kind,
                   const char* name) {
  const DTypeInfo& d = info(dtype);
  const bool held = fits(v, dtype);
  if (held && (!shown || !is_floating(dtype))) return;
  const std::string what = *name ? std::string(" (") + kind + " '" + name + "')" : "";
  if (!held) {
    if (is_floating(dtype))
      fail("[", op, "] the number ", v, what, " does not fit ", d.name, ", whose largest value is ",
           d.max, is_half(dtype) ? "; mask with booleans, or compute in f32" : "");
    fail("[", op, "] the number ", v, what, " does not fit ", d.name, ", whose values are ",
         dtype == DType::u8    ? "0"
         : dtype == DType::i32 ? "-2^31"
                               : "-2^63",
         " to ",
         dtype == DType::u8    ? "255"
         : dtype == DType::i32 ? "2^31 - 1"
                               : "2^63 - 1");
  }
  const bool vanishes =
      v.real() != 0 && visit(dtype, [&]<class T>(Tag<T>) { return double(v.converted<T>()) == 0; });
  if (vanishes)
    warn("[", op, "] the number ", v, what, " becomes 0 in ", d.name,
         ", whose smallest positive value is ", d.tiniest,
         " and in which it is used; give a larger one, or compute in a wider dtype, as with "
         ".to(DType::",
         is_half(dtype) ? "f32" : "f64", ")");
}

}  // namespace minim::detail
