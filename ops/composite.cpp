#include "minim/ops/composite.h"

namespace minim {

/// Halves, so that an element is copied log2(n) times.
Tensor cat(std::span<const Tensor> tensors, Index axis) {
  if (tensors.empty()) fail("[cat] at least one tensor is needed");
  if (tensors.size() == 1) return tensors[0];
  const size_t half = tensors.size() / 2;
  return cat(cat(tensors.first(half), axis), cat(tensors.subspan(half), axis), {.axis = axis});
}

Tensor cat(std::initializer_list<Tensor> tensors, Index axis) {
  return cat(std::span(tensors.begin(), tensors.size()), axis);
}

Tensor to_saturated(const Tensor& x, DType dtype) {
  const double most = info(dtype).max;
  return most < info(x.dtype()).max ? clamp(x, {.lo = -most, .hi = most}).to(dtype) : x.to(dtype);
}

CountedLoss cross_entropy_counted(const Tensor& logits, const Tensor& target,
                                  const op::CrossEntropy::Attrs& attrs) {
  const std::vector<Tensor> out = call(Op::cross_entropy, std::array{logits, target}, Attrs(attrs));
  return {out[0], out[2].detach()};
}

}  // namespace minim
