// Cross-correlation of images x (N, C, H, W) with weight (O, C / groups, KH, KW), plus bias (O):
// (N, O, H', W'), H' = (H + 2 padding - dilation (KH - 1) - 1) / stride + 1. With groups, each
// group of O / groups results sees its own C / groups channels; groups = C is a depthwise
// convolution. The taps of a block of positions are gathered into a matrix (im2col: Chellapilla,
// Puri and Simard, 2006) that the weight multiplies: sums are fp32 (f64 for f64), bias included,
// and rounded once.
// @throws Error naming the shapes where they do not fit.
#pragma once
#include "minim/ops/contract.h"
#include "minim/ops/window.h"

namespace minim::op {

struct Conv2d : Structured {
  struct Attrs {
    Pair stride = 1, padding = 0, dilation = 1;
    Index groups = 1;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                             .saves = {.inputs = 0b011},
                             .same_dtype = true,
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
