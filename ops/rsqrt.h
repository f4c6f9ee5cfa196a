// 1 / sqrt(x)
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Rsqrt : Unary<Rsqrt> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::positive}},
                             .saves = {.inputs = 0b1, .outputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return A(1) / math::sqrt(x);
  }
  template <class A>
  MINIM_HD static void vjp(A g, A y, A x, A* d) {
    d[0] = A(-0.5) * g * y / x;
  }
};

}  // namespace minim::op
