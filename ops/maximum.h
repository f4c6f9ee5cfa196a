// the larger of x and y; NaN if either is; equal operands each get half of the gradient
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Maximum : Pointwise {
  static constexpr Spec spec{
      .operands = {{"x"}, {"y"}}, .saves = {.inputs = 0b11}, .integers = true, .shown = 0b11};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x > y || x != x ? x : y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A y, A* d) {
    const A half = g / A(2);
    d[0] = x == y ? half : x < y ? A(0) : g;
    d[1] = x == y ? half : x > y ? A(0) : g;
  }
};

}  // namespace minim::op
