// x plus the elements of src, each added where index says: out = x, then out[index[i][j]][j] +=
// src[i][j] for axis = 0, and so on. index has as many axes as x and src, and sizes at most those
// of src, and of x except along the axis; elements of src beyond it are not used. What meets is
// added in fp32 in the order of the axis, whatever the number of threads, and rounded once.
// @throws Error where the shapes do not fit, or naming the value, its position and the valid range
// of a wrong index.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct ScatterAdd : Structured {
  static constexpr const char* name = "scatter_add";
  struct Attrs {
    Index axis = 0;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"x"}, {"index", Accepts::integer, Domain::index}, {"src"}},
      .saves = {.inputs = 0b010},
      .integers = true,
      .shown = 0b101,
      .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
