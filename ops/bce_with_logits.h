// The cross-entropy of a probability `target` with sigmoid(x), |x| * (target where x < 0, else
// 1 - target) + log1p(exp(-|x|)): nothing overflows, and no probability is rounded to 0 or 1 on the
// way. An infinite logit with the target that it means costs 0, its limit.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct LogitEntropy : Pointwise {
  static constexpr const char* name = "bce_with_logits";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  template <class A>
  MINIM_HD static A forward(A x, A target) {
    A wrong = x < A(0) ? target : A(1) - target, size = math::fabs(x);
    return (wrong == A(0) ? A(0) : size * wrong) + math::log1p(math::exp_negative(-size));
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A target, A* d) {
    d[0] = g * (math::sigmoid(x) - target);
    d[1] = -g * x;
  }
};
struct BceWithLogits : PairLoss<LogitEntropy> {
  static constexpr Spec spec{
      .operands = {{"x"}, {"target", Accepts::floating, Domain::probability}},
      .saves = {.inputs = 0b11},
      .result = Result::f32,
      .infer = infer};
};

}  // namespace minim::op
