// x^y, elementwise. Negative bases need integer exponents; the slope by y is 0 where x is 0
// and y is not negative, and -inf where it is
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Pow : Pointwise {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::positive}, {"y"}},
                             .saves = {.inputs = 0b11, .outputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return math::pow(x, y);
  }
  template <class A>
  MINIM_HD static void vjp(A g, A z, A x, A y, A* d) {
    d[0] = y == A(0) ? A(0) : math::pow_slope(g, x, y);
    d[1] = x == A(0) && y >= A(0) ? A(0) : g * math::log(x) * z;
  }
};

}  // namespace minim::op
