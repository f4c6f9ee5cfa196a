// e^x
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Exp : Unary<Exp> {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::small}};
  static constexpr Saves saves{.outputs = 0b1};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::exp(x);
  }
  template <class A>
  MINIM_HD static A slope(A, A y) {
    return y;
  }
};

}  // namespace minim::op
