// The cross-entropy of a probability `target` with sigmoid(x), max(x, 0) - x * target +
// log1p(exp(-|x|)): nothing overflows, and no probability is rounded to 0 or 1 on the way.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct LogitEntropy {
  static constexpr const char* name = "bce_with_logits";
  static constexpr size_t arity = 2;
  template <class A>
  MINIM_HD static A forward(A x, A target) {
    return (x < A(0) ? A(0) : x) - x * target + math::log1p(math::exp(-math::fabs(x)));
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A target, A* d) {
    d[0] = g * (math::sigmoid(x) - target);
    d[1] = -g * x;
  }
};
struct BceWithLogits : PairLoss<LogitEntropy> {
  static constexpr std::array operands{Operand{"x"},
                                       Operand{"target", Accepts::floating, Domain::probability}};
};

}  // namespace minim::op
