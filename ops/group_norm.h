// (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, ...), mean and var over each of
// `num_groups` groups of neighbouring channels of each n (Wu and He, 2018); weight and bias are
// (C). num_groups = C is instance normalisation.
// @throws Error where C is not a multiple of num_groups or a parameter is not (C).
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct GroupNorm {
  static constexpr std::array operands{Operand{"x"}, Operand{.name = "weight", .optional = true},
                                       Operand{.name = "bias", .optional = true}};
  static constexpr int n_outputs = 3;  ///< y; mean and var (N, num_groups), for backward
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b011, .outputs = 0b110};
  struct Attrs {
    Index num_groups = 1;
    double eps = 1e-5;
  };
  static constexpr std::array numbers{number<&Attrs::eps>("eps")};
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
