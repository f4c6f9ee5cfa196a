// e^x
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Exp : Unary<Exp> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::small}},
                             .saves = {.outputs = 0b1}};
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
