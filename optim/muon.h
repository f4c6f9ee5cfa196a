// optim/muon.h -- Muon's own parts (Keller Jordan, "Muon: an optimizer for hidden layers in neural
// networks", 2024): the momentum of a matrix, with all its singular values made about 1, is the
// direction of the step.
#pragma once
#include "minim/amp/gradients.h"

namespace minim::optim {

/// About U V^T of x = U S V^T, in the dtype of x, f32 or f64: five steps of the quintic iteration
/// X <- 3.4445 X - 4.7750 (X X^T) X + 2.0315 (X X^T)^2 X from X = x / |x|. Singular values end in
/// [0.7, 1.2], but for those that were below about 0.001 of |x|; zeros stay zeros.
Tensor orthogonalized(const Tensor& x);

/// The direction in which to go against the gradient, after the factors, and the next momentum:
/// that takes in (1 - beta) of the gradient, and beta of the way from the gradient to it (Nesterov)
/// is orthogonalized.
std::pair<Tensor, Tensor> muon_direction(const Tensor& gradient, const amp::Factors& factors,
                                         const Tensor& momentum, double beta);

/// What a matrix of that shape multiplies the rate by: sqrt(max(1, rows / columns)), or, to match
/// the root mean square of AdamW's steps, 0.2 sqrt(max(rows, columns)) (Liu et al., "Muon is
/// scalable for LLM training", 2025).
double muon_scale(const Tensor& matrix, bool match_adamw_rms);

}  // namespace minim::optim
