// autograd/parts.h -- gradients of slices in place. Where a result is used in slices alone that
// share no element, as the product that holds q, k and v, each writes its gradient into its part of
// the result's: none is made at full size and nothing is added. Kernels that write gradients of any
// strides (OpRow::strided) put them there at once, also through other views of a slice.
#pragma once
#include "minim/autograd/node.h"

namespace minim::parts {

/// Counts the uses of all that these nodes take, and marks the nodes that are parts.
void find(std::span<Node* const> nodes);
/// Where the gradient of `target` belongs, if it is of dtype `d`; undefined where no place waits
/// for it.
Tensor place(const Autograd& target, DType d);
/// The gradient of a part, or zeros where none arrived, is in its place afterwards.
void put(Node& part);

}  // namespace minim::parts
