// The cross-entropy of a probability `target` with the probability x. Logarithms stop at -100 and
// the slope's divisor at 1e-12, as in PyTorch, so that x = 0 and x = 1 stay finite; x outside [0,
// 1] gives NaN.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct ProbabilityEntropy : Pointwise {
  static constexpr const char* name = "bce";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  template <class A>
  MINIM_HD static A stopped(A log) {
    return log < A(-100) ? A(-100) : log;
  }
  template <class A>
  MINIM_HD static A forward(A x, A target) {
    return -(target * stopped(math::log(x)) + (A(1) - target) * stopped(math::log1p(-x)));
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A target, A* d) {
    const A spread = x * (A(1) - x);
    d[0] = g * ((x - target) / (spread < A(1e-12) ? A(1e-12) : spread));
    d[1] = g * (stopped(math::log1p(-x)) - stopped(math::log(x)));
  }
};
struct Bce : PairLoss<ProbabilityEntropy> {
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::probability},
                                          {"target", Accepts::floating, Domain::probability}},
                             .saves = {.inputs = 0b11},
                             .result = Result::f32,
                             .instead = "bce_with_logits",
                             .infer = infer};
};

}  // namespace minim::op
