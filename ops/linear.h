// x (..., in) times the transpose of weight (out, in), plus bias (out): (..., out). The bias is
// added before the one rounding.
// @throws Error naming both shapes where they do not fit.
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Linear {
  static constexpr std::array operands{Operand{"x"}, Operand{"weight"},
                                       Operand{.name = "bias", .optional = true}};
  static constexpr bool same_dtype = true;
  static constexpr Saves saves{.inputs = 0b011};
  static constexpr uint32_t over = 0b001;
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
