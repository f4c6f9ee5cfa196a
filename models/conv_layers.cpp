#include "minim/models/conv_layers.h"

#include <cmath>

#include "minim/models/init.h"
#include "minim/ops/composite.h"

namespace minim::models {

Conv2d::Conv2d(Index in, Index out, Index kernel, const op::Conv2d::Attrs& a, bool with_bias)
    : attrs(a) {
  if (a.groups < 1 || in % a.groups != 0)
    fail("Conv2d: ", in, " channels cannot be cut into ", a.groups, " groups");
  MemoryScope kind(MemoryKind::weights);
  weight = init::kaiming_normal(zeros({out, in / a.groups, kernel, kernel}), std::sqrt(2.0));
  parameter("weight", weight);
  if (!with_bias) return;
  bias = zeros({out});
  parameter("bias", bias);
}
Tensor Conv2d::forward(const Tensor& x) const { return conv2d(x, weight, bias, attrs); }

BatchNorm2d::BatchNorm2d(Index channels, double e, double m) : eps(e), momentum(m) {
  MemoryScope kind(MemoryKind::weights);
  weight = ones({channels}), bias = zeros({channels});
  running_mean = zeros({channels}), running_var = ones({channels});
  parameter("weight", weight);
  parameter("bias", bias);
  buffer("running_mean", running_mean);
  buffer("running_var", running_var);
}
Tensor BatchNorm2d::forward(const Tensor& x) const {
  return training() ? batch_norm_update(x, running_mean, running_var, weight, bias,
                                        {.momentum = momentum, .eps = eps})
                    : batch_norm(x, running_mean, running_var, weight, bias, {.eps = eps});
}

GroupNorm::GroupNorm(Index g, Index channels, double e) : groups(g), eps(e) {
  if (g < 1 || channels % g != 0)
    fail("GroupNorm: ", channels, " channels cannot be cut into ", g, " groups");
  MemoryScope kind(MemoryKind::weights);
  weight = ones({channels}), bias = zeros({channels});
  parameter("weight", weight);
  parameter("bias", bias);
}
Tensor GroupNorm::forward(const Tensor& x) const {
  return group_norm(x, weight, bias, {.num_groups = groups, .eps = eps});
}

}  // namespace minim::models
