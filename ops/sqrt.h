// square root; its slope at 0 is inf
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Sqrt : Unary<Sqrt> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::positive}},
                             .saves = {.outputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::sqrt(x);
  }
  template <class A>
  MINIM_HD static A slope(A, A y) {
    return A(0.5) / y;
  }
};

}  // namespace minim::op
