// log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|): never the logarithm of a rounded probability
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct LogSigmoid : Unary<LogSigmoid> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::select(x > A(0), A(0), x) - math::log1p(math::exp_negative(-math::fabs(x)));
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return math::sigmoid(-x);
  }
};

}  // namespace minim::op
