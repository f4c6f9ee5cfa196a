// hyperbolic tangent
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Tanh : Unary<Tanh> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.outputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::tanh(x);
  }
  template <class A>
  MINIM_HD static A slope(A, A y) {
    return (A(1) - y) * (A(1) + y);
  }
};

}  // namespace minim::op
