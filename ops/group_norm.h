// (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, ...), mean and var over each of
// `num_groups` groups of neighbouring channels of each n (Wu and He, 2018); weight and bias are
// (C). num_groups = C is instance normalisation.
// @throws Error where C is not a multiple of num_groups or a parameter is not (C).
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct GroupNorm : Structured {
  struct Attrs {
    Index num_groups = 1;
    double eps = 1e-5;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"x"}, {.name = "weight", .optional = true}, {.name = "bias", .optional = true}},
      .outputs = {Along::own, Along::own,
                  Along::own},  // y; mean and var (N, num_groups), for backward
      .returned = 1,
      .saves = {.inputs = 0b011, .outputs = 0b110},
      .numbers = {number<&Attrs::eps>("eps")},
      .infer = infer,
  };
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
