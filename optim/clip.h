// optim/clip.h -- gradient clipping. Norms are summed in f64, in minim's fixed order, whatever the
// gradients' dtype. A parameter that is given more than once is one.
#pragma once
#include <span>

#include "minim/core/tensor.h"

namespace minim::optim {

/// (sum |g|^p)^(1/p) over all gradients; p = infinity gives the largest |g|, NaN if any is NaN. 0
/// without gradients.
/// @throws Error when p <= 0, or a gradient still carries a loss scale.
double grad_norm(std::span<const Tensor> params, double p = 2);

/// The same of gradients in f32 or f64, each multiplied by `factor` first.
double norm_of(std::span<const Tensor> gradients, double p = 2, double factor = 1);

/// What clipping multiplies gradients of that norm by: max_norm / (norm + 1e-6), at most 1; 1 where
/// the norm is not finite. @throws Error when max_norm is negative or NaN.
double clip_coefficient(double norm, double max_norm);

/// Clips in place and returns the norm before. Where it is not finite the gradients stay as they
/// are, so that the optimizer's step sees and names the bad one (Pascanu et al., "On the difficulty
/// of training recurrent neural networks", 2013). @throws Error as grad_norm, or when max_norm is
/// negative or NaN.
double clip_grad_norm(std::span<const Tensor> params, double max_norm, double p = 2);

/// Clamps every gradient to [-limit, limit]; NaN stays. @throws Error as clip_grad_norm.
void clip_grad_value(std::span<const Tensor> params, double limit);

}  // namespace minim::optim
