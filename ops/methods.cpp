// Tensor's methods that are ops, and cat.
#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/recorder.h"
#include "minim/core/probe.h"
#include "minim/ops/functional.h"

namespace minim {

Tensor Tensor::to(DType dtype) const {
  return dtype == this->dtype() ? *this : minim::to(*this, {dtype});
}
Tensor Tensor::to(Device device) const {
  return device == this->device() ? *this : minim::to(*this, {dtype(), device});
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

/// An in-place method: its row, and what to write in its place where it is refused.
struct InPlace {
  const char* name;
  const OpRow* row;  ///< null: the operand is stored as it is
  const char* instead;
};
constexpr InPlace kAdd{"add_", &Op::add, "x = x + y"}, kSub{"sub_", &Op::sub, "x = x - y"},
    kMul{"mul_", &Op::mul, "x = x * y"}, kDiv{"div_", &Op::div, "x = x / y"},
    kCopy{"copy_", nullptr, "y itself, or cat() and where() of the parts,"};

/// A write in place leaves nothing on the tape, so it is refused where a gradient would go through.
void check_recorded(const InPlace& op, const Tensor& x, const Tensor& y) {
  if (!GradMode::enabled()) return;
  if (x.requires_grad())
    fail("[", op.name, "] ", origin(x), " ", name_of(x.dtype()), x.shape(),
         " requires gradients (or is a view of a tensor that does) and cannot be changed in place "
         "here; do it under NoGrad, or use ",
         op.instead);
  if (y.requires_grad())
    fail("[", op.name, "] the operand, ", origin(y), " ", name_of(y.dtype()), y.shape(),
         ", requires gradients, and a write in place is not recorded: its gradient would be lost; "
         "use ",
         op.instead, " which is, or y.detach() where none is wanted, or write under NoGrad");
}

/// Stores `values`, of x's shape or broadcast to it, in x.
Tensor& store(const InPlace& op, Tensor& x, const Tensor& values) {
  check_carried(x, values, op.name);
  copy_elements(
      as_strided(values, x.shape(), broadcast_strides(values.shape(), values.strides(), x.shape()),
                 values.impl()->offset),
      x);
  x.bump_version();
  if (Recorder* recorder = Recorder::current()) recorder->wrote(x, op.name);
  return x;
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
      const Tensor moves = (other != 0).to(x.device()).expand(x.shape()),
                   lost = moves * (before_ == x);
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
Tensor& update(const InPlace& op, Tensor& x, const Tensor& other) {
  const Tensor operands[] = {x, other};
  for (const Tensor& t : operands) t.impl();  // an undefined one is told as such
  check_recorded(op, x, other);
  NoGrad no_recording;
  amp::Autocast no_casts(amp::Autocast::off);
  const Watched watched(*op.row, x);
  const Tensor result = call(*op.row, operands, {})[0];
  if (info(result.dtype()).category > info(x.dtype()).category)
    fail("[", op.name, "] the result is ", name_of(result.dtype()),
         ", which an in-place op cannot store in ", name_of(x.dtype()));
  if (!(result.shape() == x.shape()))
    fail("[", op.name, "] the result has shape ", result.shape(), ", which cannot be stored in ",
         x.shape());
  store(op, x, result);
  watched.stored(x, other, result.dtype());
  return x;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other) { return update(kAdd, *this, other); }
Tensor& Tensor::sub_(const Tensor& other) { return update(kSub, *this, other); }
Tensor& Tensor::mul_(const Tensor& other) { return update(kMul, *this, other); }
Tensor& Tensor::div_(const Tensor& other) { return update(kDiv, *this, other); }

Tensor& Tensor::copy_(const Tensor& from) {
  if (!(broadcast(shape(), from.shape(), "copy_") == shape()))
    fail("[copy_] ", from.shape(), " cannot be stored in ", shape());
  if (from.impl()->scalar) detail::check_number("copy_", from.number(), dtype());
  check_recorded(kCopy, *this, from);
  return store(kCopy, *this, from);
}

Tensor& Tensor::fill_(const detail::Number& v) {
  detail::check_number("fill_", v, dtype());
  const Tensor value = full({}, v, dtype());
  if (const double x = v.real(); x == 0 || !std::isfinite(x))  // the same at any loss scale
    set_carried_scale(value, carried_scale(*this));
  return copy_(value);
}

}  // namespace minim
