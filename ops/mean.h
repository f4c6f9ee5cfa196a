// The mean over axes: summed in fp32 in the one order of core/sum.h, divided there, and rounded
// once. The mean of no elements is NaN. @throws Error for integers: what dtype was meant?
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Mean : Structured {
  using Attrs = Axes;
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}}, .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples() { return reduce_examples<Mean>(false); }
};

}  // namespace minim::op
