// models/init.h -- initialisers. Values come from the thread's Generator (one stream a tensor),
// drawn in double and rounded once, so that they are the same for every dtype up to rounding.
#pragma once
#include "minim/core/tensor.h"

namespace minim::models::init {

/// Each fills `x` in place and returns it. @throws Error where x is the result of a recorded call,
/// or a value does not fit x's dtype.
Tensor normal(Tensor x, double mean = 0, double std = 1);
Tensor uniform(Tensor x, double low, double high);
/// Glorot and Bengio, 2010: std = gain * sqrt(2 / (fan_in + fan_out)); x is (out, in, ...).
Tensor xavier_normal(Tensor x, double gain = 1);
Tensor xavier_uniform(Tensor x, double gain = 1);
/// He et al., 2015, for ReLU: std = gain / sqrt(fan_in) with gain sqrt(2).
Tensor kaiming_normal(Tensor x, double gain = 1.4142135623730951);
Tensor kaiming_uniform(Tensor x, double gain = 1.4142135623730951);
/// GPT-2's scaling of projections into the residual stream: std / sqrt(2 * layers).
Tensor residual_normal(Tensor x, Index layers, double std = 0.02);

}  // namespace minim::models::init
