// ops/composite.h -- functions made of ops that have a row.
#pragma once
#include <initializer_list>
#include <span>

#include "minim/ops/functional.h"

namespace minim {

/// All tensors, one after the other along an axis; the widest dtype wins. @throws Error when there
/// is none, or naming the two shapes that do not fit.
Tensor cat(std::span<const Tensor> tensors, Index axis = 0);
Tensor cat(std::initializer_list<Tensor> tensors, Index axis = 0);

/// x in another floating dtype, with what is too large for it at its largest value instead of inf
/// or NaN; NaN stays NaN.
Tensor to_saturated(const Tensor& x, DType dtype);
/// Tensors of one shape, one after the other along a new axis. @throws Error as cat does.
Tensor stack(std::span<const Tensor> tensors, Index axis = 0);
Tensor stack(std::initializer_list<Tensor> tensors, Index axis = 0);

/// Views of x, one after the other along an axis, of `size` elements each; the last may be shorter.
std::vector<Tensor> split(const Tensor& x, Index size, Index axis = 0);
/// Of the given sizes. @throws Error unless they add up to the axis.
std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, Index axis = 0);

struct BatchNormUpdate {
  double momentum = 0.1, eps = 1e-5;
};
/// batch_norm with the statistics of the batch, for training; moves the running ones in place:
/// running += momentum * (batch - running), with the batch's unbiased variance, as PyTorch does.
/// They are moved by the forward, so also where the step is then skipped because gradients overflow
/// under the loss scale: the batch was sound. A batch whose statistics are not finite never moves
/// them.
/// @throws Error where the batch has one value per channel, a running statistic is not (C), or the
/// momentum is not in [0, 1].
Tensor batch_norm_update(const Tensor& x, Tensor running_mean, Tensor running_var,
                         const Tensor& weight = {}, const Tensor& bias = {},
                         const BatchNormUpdate& attrs = {});

struct CountedLoss {
  Tensor loss;
  Tensor n_valid;  ///< 0-dim: how many targets are not ignored, in the loss's compute dtype (f32 or
                   ///< f64)
};
/// cross_entropy, and the number of targets it is a mean over: for weighting micro-batches by
/// tokens.
CountedLoss cross_entropy_counted(const Tensor& logits, const Tensor& target,
                                  const op::CrossEntropy::Attrs& attrs = {});

}  // namespace minim
