#include "minim/ops/composite.h"

#include "minim/autograd/recorder.h"

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

Tensor stack(std::span<const Tensor> tensors, Index axis) {
  if (tensors.empty()) fail("[stack] at least one tensor is needed");
  const int at = normalize_axis(axis, tensors[0].rank() + 1, "stack");
  std::vector<Tensor> slices;
  for (const Tensor& x : tensors) {
    if (!(x.shape() == tensors[0].shape()))
      fail("[stack] shapes ", tensors[0].shape(), " and ", x.shape(), " differ");
    slices.push_back(x.unsqueeze(at));
  }
  return cat(slices, at);
}

Tensor stack(std::initializer_list<Tensor> tensors, Index axis) {
  return stack(std::span(tensors.begin(), tensors.size()), axis);
}

std::vector<Tensor> split(const Tensor& x, Index size, Index axis) {
  const Index n = x.size(axis);
  if (size < 1) fail("[split] a size must be 1 or more, not ", size);
  std::vector<Index> sizes(size_t(n / size), size);
  if (n % size != 0 || n == 0) sizes.push_back(n % size);
  return split(x, sizes, axis);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<Index>& sizes, Index axis) {
  const Index n = x.size(axis);
  Index at = 0;
  std::vector<Tensor> parts;
  for (Index size : sizes) {
    if (size < 0 || size > n - at)
      fail("[split] size ", size, " from ", at, " on leaves axis ", axis, " of ", x.shape(),
           "; the sizes must add up to ", n);
    parts.push_back(x.slice(axis, at, at + size));
    at += size;
  }
  if (at != n)
    fail("[split] the sizes add up to ", at, ", axis ", axis, " of ", x.shape(), " has ", n);
  return parts;
}

Tensor batch_norm_update(const Tensor& x, Tensor running_mean, Tensor running_var,
                         const Tensor& weight, const Tensor& bias, const BatchNormUpdate& attrs) {
  if (x.rank() > 1 && x.numel() > 0 && x.numel() == x.size(1))
    fail("[batch_norm_update] x ", x.shape(), " has one value per channel: its variance says ",
         "nothing; train on a larger batch, or use the running statistics (a module's eval mode)");
  if (!(attrs.momentum >= 0 && attrs.momentum <= 1))
    fail("[batch_norm_update] momentum is the share of the batch in the running statistics, in ",
         "[0, 1], not ", attrs.momentum);
  const std::vector<Tensor> out =
      call(Op::batch_norm, std::array{x, Tensor(), Tensor(), weight, bias},
           Attrs(op::BatchNorm::Attrs{attrs.eps}));
  for (auto [running, name] :
       {std::pair(running_mean, "running_mean"), {running_var, "running_var"}}) {
    if (!(running.shape() == out[1].shape()))
      fail("[batch_norm_update] ", name, " has shape ", running.shape(), ", expected ",
           out[1].shape());
    if (GradMode::enabled() && running.requires_grad())
      fail("[batch_norm_update] ", name,
           " requires gradients, but it is moved in place, which is not recorded; give it "
           "without, as a module's buffer is");
  }
  if (x.numel() == 0 || Recorder::replaying()) return out[0];  // a replay's batch has been counted
  NoGrad no_recording;
  const Index count = x.numel() / x.size(1);
  const double n = double(count), m = attrs.momentum;
  const Tensor finite = all(out[2] - out[2] == 0.0);  // a variance is where all values are
  auto move = [&](Tensor& to, const Tensor& batch) {
    copy_elements(where(finite, to * (1 - m) + batch, to), to);
    to.bump_version();
  };
  move(running_mean, out[1] * m);
  move(running_var, out[2] * (m * n / (n - 1)));
  return out[0];
}

CountedLoss cross_entropy_counted(const Tensor& logits, const Tensor& target,
                                  const op::CrossEntropy::Attrs& attrs) {
  const std::vector<Tensor> out = call(Op::cross_entropy, std::array{logits, target}, Attrs(attrs));
  return {out[0], out[2].detach()};
}

}  // namespace minim
