// The sum over axes, in fp32 (f64 for f64) and the one order of core/sum.h. Integers and bool are
// summed as i64.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Sum : Structured {
  using Attrs = Accumulated;
  /// @throws Error for bad axes, and for an integer dtype of a floating x.
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"x"}}, .result = Result::attribute, .integers = true, .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples() { return reduce_examples<Sum>(true); }
};

}  // namespace minim::op
