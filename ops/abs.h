// |x|; slope 0 at 0; NaN stays NaN
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Abs : Unary<Abs> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b1},
                             .integers = true};
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
