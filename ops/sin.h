// sine of x radians, right for any finite x
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Sin : Unary<Sin> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::sin(x);
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return math::cos(x);
  }
};

}  // namespace minim::op
