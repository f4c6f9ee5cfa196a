// 1 / (1 + e^-x)
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Sigmoid : Unary<Sigmoid> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.outputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::sigmoid(x);
  }
  template <class A>
  MINIM_HD static A slope(A, A y) {
    return y * (A(1) - y);
  }
};

}  // namespace minim::op
