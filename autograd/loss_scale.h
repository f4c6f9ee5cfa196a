// autograd/loss_scale.h -- the part of backward() that knows of loss scales.
#pragma once
#include <span>

namespace minim {

struct Node;
struct OpRow;
class Tensor;

/// The loss scales in a graph.
struct Scales {
  bool uniform = true;  ///< all gradients of leaves carry `most`; else each node says its own
  double most = 1;
};
/// Of all nodes that backward() goes through, the root first: what the gradient of each carries.
/// Where the root alone is scaled, as in scaler.scale(loss).backward(), none is looked at twice.
/// @param first what the gradient that backward() begins with carries
/// @throws Error where gradients of two scales, or of one and none, would be added.
Scales trace_scales(std::span<Node* const> nodes, double first);

/// @throws Error where what a hook returned does not carry the scale of what it was given.
void check_hook_scale(const OpRow& made_by, const Tensor& returned, double scale);

}  // namespace minim
