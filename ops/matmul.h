// The product of matrices: x (..., M, K) times y (..., K, N), whose leading axes broadcast. A
// vector is one row as x, one column as y, and that axis is dropped from the result. Operands of
// any strides are read where they are.
// @throws Error naming both shapes where the inner sizes differ or the leading axes do not
// broadcast.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct MatMul : Structured {
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"x"}, {"y"}}, .saves = {.inputs = 0b11}, .same_dtype = true, .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
