// (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, ...), by channel (Ioffe and Szegedy,
// 2015). mean and var are running_mean and running_var where these are given (evaluation), else
// those of the batch (training; var of the population); all four operands are (C). The result has
// x's dtype, whatever the parameters' is. A pure function: batch_norm_update (ops/composite.h)
// also moves the running statistics.
// @throws Error where a parameter is not (C), one running statistic lacks the other, or the batch
// has one value per channel.
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct BatchNorm {
  static constexpr std::array operands{
      Operand{"x"}, Operand{.name = "running_mean", .optional = true},
      Operand{.name = "running_var", .domain = Domain::positive, .optional = true},
      Operand{.name = "weight", .optional = true}, Operand{.name = "bias", .optional = true}};
  static constexpr Result result = Result::attribute;
  static constexpr int n_outputs = 3;  ///< y; the mean and var (C) that were used, for backward
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b01001, .outputs = 0b110};
  struct Attrs {
    double eps = 1e-5;
  };
  static constexpr std::array numbers{number<&Attrs::eps>("eps")};
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
