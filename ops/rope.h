// Rotary position embedding (Su et al., 2021): x (..., T, D) with D even; elements i and i + D/2 of
// position t are a pair (the halves of Llama's rotate_half), turned by the angle (offset + t) *
// theta^(-2i/D). Angles are computed in f64, so that they hold at any position, and the turn in
// fp32 (f64 for f64).
// @throws Error where D is odd or x has no position axis.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Rope : Structured {
  struct Attrs {
    double theta = 10000;
    Index offset = 0;  ///< the position of t = 0: how many tokens a key-value cache holds
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}}, .strided = true, .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
