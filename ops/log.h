// natural logarithm
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Log : Unary<Log> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::positive}},
                             .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::log(x);
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A* d) {
    d[0] = g / x;
  }
};

}  // namespace minim::op
