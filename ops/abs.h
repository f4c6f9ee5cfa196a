// |x|; slope 0 at 0; NaN stays NaN
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Abs : Unary<Abs> {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::off_zero}};
  static constexpr bool integers = true;
  static constexpr Saves saves{.inputs = 0b1};
  template <class A>
  MINIM_HD static A forward(A x) {
    if constexpr (std::is_integral_v<A>)
      return x < 0 ? -x : x;
    else
      return math::fabs(x);
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return math::sign(x);
  }
};

}  // namespace minim::op
