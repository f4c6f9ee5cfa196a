// natural logarithm
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Log : Unary<Log> {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::positive}};
  static constexpr Saves saves{.inputs = 0b1};
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
