// The sum over axes, in fp32 (f64 for f64) and the one order of core/sum.h. Integers and bool are
// summed as i64.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Sum {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr bool integers = true;
  static constexpr Result result = Result::attribute;
  using Attrs = Accumulated;
  /// @throws Error for bad axes, and for an integer dtype of a floating x.
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples() { return reduce_examples<Sum>(true); }
};

}  // namespace minim::op
