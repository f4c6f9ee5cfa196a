// -log softmax(logits)[target], with logits (..., C) and class numbers target (...). Targets equal
// to ignore_index count neither in the sum nor in the mean; when all are ignored the loss is 0 and
// so is its gradient. The loss is computed and returned in fp32 (f64 for f64), whatever the logits'
// dtype. Label smoothing: (1 - s) nll + s * mean of -log p over the classes (Szegedy et al., 2016)
// whose logit is not -inf: a masked class has the probability 0 and gets no share of s. The loss is
// inf where the target itself is masked.
// @throws Error where the shapes do not fit, or naming the value, its position and the valid range
// of a wrong target.
#pragma once
#include "minim/ops/contract.h"
#include "minim/ops/loss_struct.h"

namespace minim::op {

struct CrossEntropy : Structured {
  struct Attrs {
    double label_smoothing = 0;
    Index ignore_index = -100;
    Reduction reduction = Reduction::mean;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"logits"}, {"target", Accepts::integer, Domain::index}},
      .outputs = {Along::own, Along::own,
                  Along::own},  // loss; log sum exp(x - max) (...) and the number of targets that
                                // count, for backward
      .returned = 1,
      .saves = {.inputs = 0b11, .outputs = 0b110},
      .result = Result::f32,
      .infer = infer,
  };
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
