// (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, ...), by channel (Ioffe and Szegedy,
// 2015). mean and var are running_mean and running_var where these are given (evaluation), else
// those of the batch (training; var of the population); all four operands are (C). The result has
// x's dtype, whatever the parameters' is. A pure function: batch_norm_update (ops/composite.h)
// also moves the running statistics.
// @throws Error where a parameter is not (C), one running statistic lacks the other, or the batch
// has one value per channel.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct BatchNorm : Structured {
  struct Attrs {
    double eps = 1e-5;
  };
  static void infer(OpArgs& args);
  static constexpr Spec spec{
      .operands = {{"x"},
                   {.name = "running_mean", .optional = true},
                   {.name = "running_var", .domain = Domain::positive, .optional = true},
                   {.name = "weight", .optional = true},
                   {.name = "bias", .optional = true}},
      .outputs = {Along::own, Along::own,
                  Along::own},  // y; the mean and var (C) that were used, for backward
      .returned = 1,
      .saves = {.inputs = 0b01001, .outputs = 0b110},
      .result = Result::attribute,
      .numbers = {number<&Attrs::eps>("eps")},
      .infer = infer,
  };
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
