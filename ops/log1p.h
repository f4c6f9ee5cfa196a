// log(1 + x), exact to the last bits where x is tiny
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Log1p : Unary<Log1p> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::positive}},
                             .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::log1p(x);
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return A(1) / (A(1) + x);
  }
};

}  // namespace minim::op
