// x (..., in) times the transpose of weight (out, in), plus bias (out): (..., out). The bias is
// added before the one rounding.
// @throws Error naming both shapes where they do not fit.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Linear : Structured {
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                             .saves = {.inputs = 0b011},
                             .same_dtype = true,
                             .over = 0b001,
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
