// x * y
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Mul : Pointwise {
  static constexpr Spec spec{
      .operands = {{"x"}, {"y"}}, .saves = {.inputs = 0b11}, .integers = true};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x * y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A y, A* d) {
    d[0] = g * y;
    d[1] = g * x;
  }
};

}  // namespace minim::op
