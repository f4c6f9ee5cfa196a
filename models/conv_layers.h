// models/conv_layers.h -- layers for images (batch, channels, height, width).
#pragma once
#include "minim/models/module.h"
#include "minim/ops/conv2d.h"

namespace minim::models {

/// Cross-correlation with weights (out, in / groups, kernel height, kernel width), kaiming_normal,
/// and a bias of 0.
class Conv2d : public Module {
 public:
  Conv2d(Index in, Index out, Index kernel, const op::Conv2d::Attrs& attrs = {}, bool bias = true);
  Tensor forward(const Tensor& x) const override;
  Tensor weight, bias;  ///< bias is undefined without one
  op::Conv2d::Attrs attrs;
};

/// Over batch, height and width of each channel (Ioffe and Szegedy, 2015). Training uses the
/// batch's statistics and moves the running ones (batch_norm_update); eval mode uses those.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(Index channels, double eps = 1e-5, double momentum = 0.1);
  Tensor forward(const Tensor& x) const override;
  Tensor weight, bias, running_mean, running_var;
  double eps, momentum;
};

/// Over the channels of a group and all that follows (Wu and He, 2018); the batch plays no part.
class GroupNorm : public Module {
 public:
  GroupNorm(Index groups, Index channels, double eps = 1e-5);
  Tensor forward(const Tensor& x) const override;
  Tensor weight, bias;
  Index groups;
  double eps;
};

}  // namespace minim::models
