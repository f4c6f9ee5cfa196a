// out[i][j][k] = x[i][index[i][j][k]][k] for axis = 1, and so on. The index has as many axes as x,
// and sizes at most those of x except along the axis; the result has its shape. Gradients that meet
// are added in fp32, in the order of the axis.
// @throws Error where the shapes do not fit, or naming the value, its position and the valid range
// of a wrong index.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Gather : Structured {
  static constexpr const char* name = "gather";
  struct Attrs {
    Index axis = 0;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}, {"index", Accepts::integer, Domain::index}},
                             .saves = {.inputs = 0b10},
                             .integers = true,
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
