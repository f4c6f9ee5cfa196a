// softmax(scale * q k^T) v over the last two axes: q (..., Tq, D), k (..., Tk, D), v (..., Tk, Dv)
// give (..., Tq, Dv) (Vaswani et al., 2017). The leading axes are the same in all three. Scores and
// probabilities stay in fp32. A query attends to the keys that every given mask allows: `mask`,
// broadcastable to (..., Tq, Tk), where it is true; `causal`, where the key's number is at most the
// query's. One that may attend to nothing gives 0, and gradient 0.
// @throws Error naming the shapes where they do not fit.
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct ScaledDotProductAttention {
  static constexpr std::array operands{
      Operand{"q"}, Operand{"k"}, Operand{"v"},
      Operand{.name = "mask", .accepts = Accepts::boolean, .optional = true}};
  static constexpr bool same_dtype = true;
  static constexpr int n_outputs =
      2;  ///< the result; the probabilities (..., Tq, Tk), for backward
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b0111, .outputs = 0b10};
  struct Attrs {
    bool causal = false;
    double scale = 0;  ///< 0 is 1 / sqrt(D)
  };
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
