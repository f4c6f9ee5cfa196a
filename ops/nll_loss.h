// -x[target], with log-probabilities x (..., C) and class numbers target (...): what cross_entropy
// is after its log_softmax. Targets equal to ignore_index count neither in the sum nor in the mean;
// when all are ignored the loss is 0 and so is its gradient. The loss is fp32 (f64 for f64).
// @throws Error where the shapes do not fit, or naming the value, its position and the valid range
// of a wrong target.
#pragma once
#include "minim/ops/contract.h"
#include "minim/ops/loss_struct.h"

namespace minim::op {

struct NllLoss : Structured {
  struct Attrs {
    Index ignore_index = -100;
    Reduction reduction = Reduction::mean;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}, {"target", Accepts::integer, Domain::index}},
                             .saves = {.inputs = 0b10},
                             .result = Result::f32,
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
