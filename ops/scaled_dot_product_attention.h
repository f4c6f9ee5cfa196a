// softmax(scale * q k^T) v over the last two axes: q (..., Tq, D), k (..., Tk, D), v (..., Tk, Dv)
// give (..., Tq, Dv) (Vaswani et al., 2017). The leading axes are the same in all three, but k and
// v may have fewer heads, the last of these axes: head h of q then takes head h / (Hq / Hkv) of k
// and v (grouped queries: Ainslie et al., 2023). Scores and probabilities are fp32 (f64 for f64). A
// query attends to the keys that every given mask allows: `mask`, broadcastable to (..., Tq, Tk),
// where it is true; `causal`, where the key's number is at most the query's. One that may attend to
// nothing gives 0, and gradient 0. `dropout` is on the probabilities, drawn as the op dropout would
// for all
// (..., Tq, Tk) of them.
// `fused` works in tiles and never holds a (Tq, Tk) matrix (attention_fused.cpp); `reference` is
// the formula, product by product, and keeps the probabilities for backward.
// @throws Error naming the shapes where they do not fit, and a dropout outside [0, 1).
#pragma once
#include "minim/ops/contract.h"

namespace minim {

enum class AttentionKernel : uint8_t { fused, reference };

namespace op {

struct ScaledDotProductAttention : Structured {
  /// The result, its axes in memory in the order of q's, and for backward: of fused, the largest
  /// score and the sum of e^(score - largest) of each row, (..., Tq, 2); of reference, the
  /// probabilities (..., Tq, Tk).
  struct Attrs {
    bool causal = false;
    double scale = 0;  ///< 0 is 1 / sqrt(D)
    double dropout = 0;
    AttentionKernel kernel = AttentionKernel::fused;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"q"},
                   {"k"},
                   {"v"},
                   {.name = "mask", .accepts = Accepts::boolean, .optional = true}},
      .outputs = {Along::own, Along::own},
      .returned = 1,
      .saves = {.inputs = 0b1111, .outputs = 0b10},
      .same_dtype = true,
      .random = true,
      .strided = true,
      .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace op
}  // namespace minim
