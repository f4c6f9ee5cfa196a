// x * x
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Square : Unary<Square> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}, .integers = true};
  template <class A>
  MINIM_HD static A forward(A x) {
    return x * x;
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return A(2) * x;
  }
};

}  // namespace minim::op
