// core/tensor.h -- a tensor is a shape, strides and an offset over shared storage. Copies of a
// Tensor share everything; views share the storage and with it the version counter that every
// in-place write bumps.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "minim/core/allocator.h"
#include "minim/core/device.h"
#include "minim/core/number.h"
#include "minim/core/op_args.h"

namespace minim {

struct Autograd;  // autograd/node.h: requires_grad, grad, the node that made the tensor

struct Storage {
  Storage(size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  void* data;
  size_t bytes;
  Device device;
  MemoryKind kind;
  uint64_t version = 0;
};

/// Whether nobody else holds it, and what others did with it before they let go is over:
/// use_count() alone does not wait for that.
template <class T>
bool is_sole_owner(const std::shared_ptr<T>& p) {
  if (p.use_count() != 1) return false;
  const std::shared_ptr<T> acquired = p;
  return true;
}

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  Shape shape;
  Strides strides;  ///< in elements; 0 along a broadcast axis
  Index offset = 0;
  DType dtype = DType::f32;
  bool scalar = false;                      ///< a number of the language: it never widens a tensor
  std::shared_ptr<const std::string> name;  ///< for messages: a parameter's dotted name
  std::shared_ptr<Autograd> autograd;
};

/// What takes a hook away again; a second remove() does nothing.
struct HookHandle {
  std::function<void()> remove = [] {};
};

class Tensor {
 public:
  Tensor() = default;  ///< undefined: an operand that is not there
  /// A number of the language (bool, integers and floats of any width), 0-dim and weak in
  /// promotion: `x * 2.0` keeps x's dtype. @throws Error for an integer above 2^63 - 1.
  template <detail::Arithmetic T>
  Tensor(T v) : Tensor(scalar(v)) {}
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return bool(impl_); }
  explicit operator bool() const = delete;  // ambiguous: defined(), or item<bool>()?

  // From here on everything @throws Error on an undefined tensor.
  const Shape& shape() const { return impl()->shape; }
  const Strides& strides() const { return impl()->strides; }
  int rank() const { return shape().rank(); }
  Index size(Index axis) const { return shape()[normalize_axis(axis, rank(), "size")]; }
  Index numel() const { return shape().numel(); }
  DType dtype() const { return impl()->dtype; }
  Device device() const { return impl()->storage->device; }
  bool is_contiguous() const;
  Typed typed() const;

  /// In the memory of device().
  void* data() const { return advance_bytes(impl()->offset); }
  /// Typed data. @throws Error unless T is the dtype and the tensor contiguous, on the host.
  template <class T>
  std::span<T> span() const {
    check_span(dtype_of<T>());
    return {static_cast<T*>(data()), size_t(numel())};
  }
  /// The value of a tensor of one element; an i64 beyond 2^53 is rounded. @throws Error when it has
  /// another number of elements.
  double item() const { return number().real(); }
  /// The same as a T. @throws Error also where T does not hold it: an integer or bool must be it
  /// exactly, as must a float where the tensor holds an integer; a float is rounded, but not to
  /// inf.
  template <detail::Arithmetic T>
  T item() const {
    const detail::Number v = number();
    if (!v.fits<T>()) fail_item(v, std::is_same_v<T, bool>);
    return v.converted<T>();
  }
  /// The same, exactly.
  detail::Number number() const;
  /// All elements in row-major order; an i64 beyond 2^53 is rounded: read those by span<int64_t>().
  std::vector<double> to_vector() const;
  /// Itself where the host can read it, else a copy there, without history.
  Tensor on_host() const;

  uint64_t version() const { return impl()->storage->version; }
  void bump_version() const { ++impl()->storage->version; }

  const std::string& name() const;  ///< "" where none was set
  const Tensor& set_name(std::string name) const {
    impl()->name = std::make_shared<const std::string>(std::move(name));
    return *this;
  }
  /// The one way to what the tensor is.
  TensorImpl* impl() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return impl_.get();
  }
  const std::shared_ptr<TensorImpl>& shared() const { return impl_; }

  // Recorded by autograd; defined with the ops (ops/methods.cpp).
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor contiguous() const;
  Tensor clone() const;
  Tensor reshape(const Shape& shape) const;  ///< one size may be -1
  Tensor flatten(Index from = 0, Index to = -1) const;
  Tensor transpose(Index a, Index b) const;
  Tensor permute(const Dims& order) const;
  Tensor slice(Index axis, Index begin, Index end, Index step = 1) const;
  Tensor select(Index axis, Index i) const;
  Tensor expand(const Shape& shape) const;  ///< -1 keeps a size
  Tensor squeeze(Index axis) const;
  Tensor unsqueeze(Index axis) const;

  // In place; the operand is broadcast to this tensor and may overlap it. Not recorded. The result
  // is rounded to this tensor's dtype, whatever the operand's: f32 added to f16 may be lost (1 +
  // 1e-4 is 1) or leave its range (1e6 is inf). A Probe counts such additions as lost and sees such
  // an inf. @throws Error outside NoGrad where this, a tensor it is a view of, or the operand
  // requires gradients; on a tensor whose elements share memory (an expanded view); where the
  // operand does not broadcast; where a number does not fit; and where one carries a loss scale and
  // the other does not.
  Tensor& fill_(const detail::Number& v);
  Tensor& zero_() { return fill_(0); }
  Tensor& copy_(const Tensor& from);
  Tensor& add_(const Tensor& other);
  Tensor& sub_(const Tensor& other);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);

  // Autograd; defined in autograd/tape.cpp.
  bool requires_grad() const;
  const Tensor& set_requires_grad(bool on = true) const;
  /// The gradient that backward() summed here; undefined before. f32 for 16-bit leaves. Several
  /// threads may go backward to one leaf, each through a graph of its own, and read this meanwhile
  /// (docs/6-the-tape.md has what may be shared).
  Tensor grad() const;
  /// A loss scale that it carries goes with it. @throws Error unless `grad` is undefined, or
  /// floating and of this shape; and where it is made of scaled and other values.
  void set_grad(const Tensor& grad) const;
  /// Calls `f` in each backward() with this tensor's whole gradient, before anything is computed
  /// from it; a defined result replaces it. A leaf's hook sees the sum over that backward() alone,
  /// at its end, before it is added to grad(). Under a loss scale the gradient carries the scale.
  /// Must not change its argument, which may be strided. @throws Error, in backward(), when the
  /// result has another shape.
  HookHandle register_hook(std::function<Tensor(const Tensor&)> f) const;
  /// The same data without history.
  Tensor detach() const;
  /// Gradients of this 0-dim tensor with regard to every leaf it was made from. @throws Error where
  /// another backward() is going through the same graph, in another thread or around a hook.
  void backward(bool retain_graph = false) const;
  /// The same for any shape, with its cotangent.
  void backward(const Tensor& gradient, bool retain_graph = false) const;

 private:
  void* advance_bytes(Index offset) const {
    return static_cast<std::byte*>(impl_->storage->data) + offset * Index(size_of(impl_->dtype));
  }
  static Tensor scalar(const detail::Number& v);
  [[noreturn]] static void fail_undefined();
  [[noreturn]] static void fail_item(const detail::Number& v, bool wanted_bool);
  void check_span(DType wanted) const;
  std::shared_ptr<TensorImpl> impl_;
};

/// Uninitialised. Counted as the current MemoryScope's kind.
Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = default_device());
/// The same for `empty({2, 3})`, so that std::empty, where a program sees it too, is no better.
template <std::integral T>
Tensor empty(std::initializer_list<T> shape) {
  Shape sizes;
  for (T n : shape) sizes.push_back(Index(n));
  return empty(sizes, DType::f32);
}
/// @throws Error where a finite value does not fit the dtype. Warns where it becomes 0 there.
Tensor full(const Shape& shape, const detail::Number& value, DType dtype = DType::f32,
            Device device = default_device());
inline Tensor zeros(const Shape& s, DType d = DType::f32, Device dev = default_device()) {
  return full(s, 0, d, dev);
}
inline Tensor ones(const Shape& s, DType d = DType::f32, Device dev = default_device()) {
  return full(s, 1, d, dev);
}
/// From values in row-major order, rounded once to `dtype`. @throws Error when the count does not
/// fit the shape, or a finite value the dtype: infinities are to be given as such.
Tensor tensor(std::span<const double> values, const Shape& shape, DType dtype = DType::f32,
              Device device = default_device());
Tensor tensor(std::initializer_list<double> values, DType dtype = DType::f32);
/// From integers, which keep their 64 bits.
Tensor tensor(std::span<const int64_t> values, const Shape& shape, DType dtype = DType::i64,
              Device device = default_device());
template <std::integral T>
Tensor tensor(std::initializer_list<T> values, DType dtype = DType::f32) {
  std::vector<int64_t> wide;
  for (T v : values) wide.push_back(detail::Number(v).integer());
  return tensor(std::span<const int64_t>(wide), {Index(wide.size())}, dtype);
}
/// 0, 1, ... n - 1. @throws Error where n - 1 does not fit the dtype.
Tensor arange(Index n, DType dtype = DType::i64, Device device = default_device());

/// A view of the same storage, not recorded by autograd. @throws Error where it reaches outside it,
/// or the strides are not one for each axis.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, Index offset);
/// Copies elements between any dtypes and strides of one shape, rounding once; not recorded, no
/// version change: below the tape, where copy_() is what refuses to lose a gradient. The two may
/// overlap. @throws Error when the shapes differ, or elements of `to`
/// share memory.
void copy_elements(const Tensor& from, const Tensor& to);

/// Makes `arg`, which is fresh, point at a tensor's data; an undefined tensor leaves it as it is.
inline void point(Arg& arg, const Tensor& x) {
  if (!x.defined()) return;
  arg.data = x.data();
  arg.dtype = x.dtype();
  arg.shape = x.shape();
  arg.strides = x.strides();
  arg.defined = true;
  arg.device = x.device();
}
inline Arg arg_of(const Tensor& x) {
  Arg arg;
  point(arg, x);
  return arg;
}

/// The same values where the host can read them: itself, or of a copy that `keep` holds.
Arg on_host(const Arg& x, Tensor& keep);

/// Values with shape and dtype, e.g. "[[1, 2], [3, 4]] f32(2, 2)"; long tensors are shortened. A
/// value has as many digits as tell it from all others of its dtype.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace minim
