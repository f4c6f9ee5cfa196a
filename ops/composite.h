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
