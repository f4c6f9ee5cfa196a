// optim/gradient_statistics.h -- what the gradients look like, parameter by parameter: which ones
// vanish, explode or are sparse.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "minim/core/tensor.h"

namespace minim::optim {

struct GradientStatistics {
  std::string name;              ///< of the parameter; its number where it has none
  double norm = 0, max_abs = 0;  ///< of the finite values
  double nonzero_share = 0;      ///< of all values; a low one in 16 bits is underflow
  int64_t nonfinite = 0;         ///< how many values are inf or NaN
};

/// For each parameter that has a gradient, once however often it is given; summed in f64, in
/// minim's order.
/// @throws Error when a gradient still carries a loss scale.
std::vector<GradientStatistics> gradient_statistics(std::span<const Tensor> params);

}  // namespace minim::optim
