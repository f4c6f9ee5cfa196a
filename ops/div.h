// x / y, true division: integers become f32
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Div : Pointwise {
  static constexpr Spec spec{.operands = {{"x"}, {"y", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b11}};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x / y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A y, A* d) {
    d[0] = g / y;
    d[1] = -g * (x / y) / y;  // neither y * y nor g * x need fit
  }
};

}  // namespace minim::op
