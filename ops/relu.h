// max(x, 0); slope 0 at 0; NaN stays NaN
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Relu : Unary<Relu> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::select(x < A(0), A(0), x);
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return math::select(x <= A(0), A(0), A(1));  // of NaN 1, as in PyTorch: it is passed on too
  }
};

}  // namespace minim::op
