// 1 / x
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Reciprocal : Unary<Reciprocal> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return A(1) / x;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A* d) {
    d[0] = -g / x / x;  // neither x * x nor the slope alone need fit
  }
};

}  // namespace minim::op
