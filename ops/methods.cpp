// Tensor's methods that are ops, and cat.
#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/core/probe.h"
#include "minim/ops/functional.h"

namespace minim {

Tensor Tensor::to(DType dtype) const {
  return dtype == this->dtype() ? *this : minim::to(*this, {dtype});
}
Tensor Tensor::clone() const { return minim::to(*this, {dtype()}); }
Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::reshape(const Shape& shape) const {
  Strides strides;
  bool viewable =
      op::Reshape::strides_for(arg_of(*this), op::Reshape::resolve(this->shape(), shape), strides);
  return minim::reshape(viewable ? *this : clone(), {shape});
}

Tensor Tensor::flatten(Index from, Index to) const {
  if (rank() == 0) return axis_bit(from, 0, "flatten"), axis_bit(to, 0, "flatten"), reshape({1});
  int first = normalize_axis(from, rank(), "flatten"), last = normalize_axis(to, rank(), "flatten");
  Shape merged = shape();
  for (int i = first; i < last; ++i) {
    merged[first] *= merged[first + 1];
    merged.erase(first + 1);
  }
  return reshape(merged);
}

Tensor Tensor::permute(const Dims& order) const { return minim::permute(*this, {order}); }

Tensor Tensor::transpose(Index a, Index b) const {
  Dims order;
  if (rank() == 0) return axis_bit(a, 0, "transpose"), axis_bit(b, 0, "transpose"), permute(order);
  for (int i = 0; i < rank(); ++i) order.push_back(i);
  std::swap(order[normalize_axis(a, rank(), "transpose")],
            order[normalize_axis(b, rank(), "transpose")]);
  return permute(order);
}

Tensor Tensor::slice(Index axis, Index begin, Index end, Index step) const {
  return minim::slice(*this, {axis, begin, end, step});
}

Tensor Tensor::select(Index axis, Index i) const {
  Index n = size(axis), at = i < 0 ? i + n : i;
  if (at < 0 || at >= n)
    fail("[select] index ", i, " is out of range for axis ", axis, " of ", shape());
  return slice(axis, at, at + 1).squeeze(axis);
}

Tensor Tensor::expand(const Shape& shape) const { return minim::expand(*this, {shape}); }

Tensor Tensor::squeeze(Index axis) const {
  Shape shape = this->shape();
  if (rank() == 0) return axis_bit(axis, 0, "squeeze"), *this;
  int at = normalize_axis(axis, rank(), "squeeze");
  if (shape[at] != 1) return *this;
  shape.erase(at);
  return reshape(shape);
}

Tensor Tensor::unsqueeze(Index axis) const {
  Shape shape = this->shape();
  shape.insert(normalize_axis(axis, rank() + 1, "unsqueeze"), 1);
  return reshape(shape);
}

namespace {

void check_writable(const Tensor& x, const char* what) {
  if (GradMode::enabled() && x.requires_grad())
    fail("[", what, "] ", origin(x),
         " requires gradients (or is a view of a tensor that does) and cannot be changed in place "
         "here; do it under NoGrad, or use an out-of-place op");
}

/// What a probe is told of an op in place on 16 bits: of addends that are not 0, how many leave
/// their element as it was; and what the store, not the op, makes infinite.
class Watched {
 public:
  Watched(const OpRow& row, const Tensor& x)
      : probe_(is_half(x.dtype()) ? Probe::current() : nullptr),
        row_(row),
        adds_(&row == &Op::add || &row == &Op::sub),
        unseen_(probe_ && adds_ ? nullptr : Probe::current()) {
    if (!probe_) return;
    ProbeScope uncounted(nullptr);
    before_ = x.clone();
  }
  /// After the result was stored in x.
  void stored(const Tensor& x, const Tensor& other, DType computed) const {
    if (!probe_) return;
    if (adds_) {
      const Tensor moves = (other != 0).expand(x.shape()), lost = moves * (before_ == x);
      probe_->stored_half(sum(moves).item<int64_t>(), sum(lost).item<int64_t>());
    } else if (computed == x.dtype()) {
      return;  // the op's call told of it
    }
    OpArgs args(2, 1);
    point(args.in[0], before_), point(args.in[1], other), point(args.out[0], x);
    args.dtype = x.dtype();
    probe_->after_op(row_, args, false);
  }

 private:
  Probe* probe_;
  const OpRow& row_;
  bool adds_;
  ProbeScope unseen_;
  Tensor before_;
};

/// x = op(x, other), computed in x's dtype rules and stored in x's dtype. Never cast by autocast.
Tensor& update(Tensor& x, const OpRow& row, const Tensor& other) {
  check_writable(x, row.name);
  NoGrad no_recording;
  amp::Autocast no_casts(amp::Autocast::off);
  const Tensor operands[] = {x, other};
  for (const Tensor& t : operands) t.impl();  // an undefined one is told as such
  const Watched watched(row, x);
  Tensor result = call(row, operands, {})[0];
  if (info(result.dtype()).category > info(x.dtype()).category)
    fail("[", row.name, "_] the result is ", name_of(result.dtype()),
         ", which an in-place op cannot store in ", name_of(x.dtype()));
  if (!(result.shape() == x.shape()))
    fail("[", row.name, "_] the result has shape ", result.shape(), ", which cannot be stored in ",
         x.shape());
  copy_elements(result, x);
  watched.stored(x, other, result.dtype());
  x.bump_version();
  return x;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other) { return update(*this, Op::add, other); }
Tensor& Tensor::sub_(const Tensor& other) { return update(*this, Op::sub, other); }
Tensor& Tensor::mul_(const Tensor& other) { return update(*this, Op::mul, other); }
Tensor& Tensor::div_(const Tensor& other) { return update(*this, Op::div, other); }

Tensor& Tensor::copy_(const Tensor& from) {
  check_writable(*this, "copy_");
  if (!(broadcast(shape(), from.shape(), "copy_") == shape()))
    fail("[copy_] ", from.shape(), " cannot be stored in ", shape());
  if (from.impl()->scalar) detail::check_number("copy_", from.number(), dtype());
  copy_elements(as_strided(from, shape(), broadcast_strides(from.shape(), from.strides(), shape()),
                           from.impl()->offset),
                *this);
  bump_version();
  return *this;
}

Tensor& Tensor::fill_(const detail::Number& v) {
  detail::check_number("fill_", v, dtype());
  return copy_(full({}, v, dtype()));
}

}  // namespace minim
