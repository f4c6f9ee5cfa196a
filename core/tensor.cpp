#include "minim/core/tensor.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "minim/core/convert.h"
#include "minim/core/op_args.h"
#include "minim/core/pool.h"

namespace minim {

Storage::Storage(size_t n, Device d)
    : data(memory::allocate(n, d, MemoryScope::current())),
      bytes(n),
      device(d),
      kind(MemoryScope::current()) {}
Storage::~Storage() { memory::release(data, bytes, device, kind); }

namespace {

/// The number of elements of a tensor of that shape.
Index check_sizes(const Shape& shape) {
  for (Index n : shape)
    if (n < 0) fail("a tensor cannot have the shape ", shape);
  return shape.numel();
}

Tensor number(double v, DType dtype) {
  Tensor t = full({}, v, dtype);
  t.impl()->scalar = true;
  return t;
}

/// Element numbers [first, end) that strides reach from element 0; {0, 0} where there is no
/// element.
struct Reach {
  Index first = 0, end = 0;
};
Reach reach(const Shape& shape, const Strides& strides) {
  if (check_sizes(shape) == 0) return {};
  Reach r{0, 1};
  for (int i = 0; i < shape.rank(); ++i)
    (strides[i] < 0 ? r.first : r.end) += (shape[i] - 1) * strides[i];
  return r;
}

/// Whether two elements may be in one place: an axis does not step over all that smaller steps
/// reach.
bool overlaps_itself(const Shape& shape, const Strides& strides) {
  std::vector<std::pair<Index, Index>> steps;  // and by how much they reach in all
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] > 1) steps.emplace_back(std::abs(strides[i]), shape[i] - 1);
  std::sort(steps.begin(), steps.end());
  Index reached = 0;
  for (auto [step, times] : steps) {
    if (step <= reached) return true;
    reached += step * times;
  }
  return false;
}

/// Whether writing to one may change what is still to be read from the other.
bool disturb(const Tensor& from, const Tensor& to) {
  const TensorImpl &a = *from.impl(), &b = *to.impl();
  if (a.storage != b.storage || (a.offset == b.offset && a.strides == b.strides)) return false;
  Reach x = reach(a.shape, a.strides), y = reach(b.shape, b.strides);
  return a.offset + x.first < b.offset + y.end && b.offset + y.first < a.offset + x.end;
}

}  // namespace

Tensor::Tensor(double v) : Tensor(number(v, DType::f64)) {}
Tensor::Tensor(int64_t v) : Tensor(empty({}, DType::i64)) {
  impl_->scalar = true;
  *static_cast<int64_t*>(data()) = v;
}
Tensor::Tensor(bool v) : Tensor(number(v, DType::boolean)) {}

const std::string& Tensor::name() const {
  static const std::string none;
  return impl()->name ? *impl()->name : none;
}

bool Tensor::is_contiguous() const {
  if (numel() == 0) return true;
  Index step = 1;
  for (int i = rank(); i-- > 0;) {
    if (shape()[i] != 1 && strides()[i] != step) return false;
    step *= shape()[i];
  }
  return true;
}

Typed Tensor::typed() const {
  return {dtype(), impl()->scalar ? Rank::scalar
                   : rank() == 0  ? Rank::zero_dim
                                  : Rank::dimensioned};
}

void Tensor::fail_undefined() {
  fail(
      "the tensor is undefined (a default Tensor(), or a gradient or operand that is not there); "
      "ask defined() first, or give it a value");
}

void Tensor::check_span(DType wanted) const {
  if (wanted != dtype())
    fail("span of ", name_of(wanted), " asked of a ", name_of(dtype()),
         " tensor; convert with .to()");
  if (!is_contiguous())
    fail("span asked of a strided view ", shape(), "; call .contiguous() first");
}

double Tensor::item() const {
  if (numel() != 1) fail("item() needs one element, the tensor has shape ", shape());
  double v;
  v = *load_run<double>(data(), dtype(), 1, 1, &v);
  return v;
}

std::vector<double> Tensor::to_vector() const {
  Tensor dense = empty(shape(), DType::f64);
  copy_elements(*this, dense);
  auto s = dense.span<double>();
  return {s.begin(), s.end()};
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  check_sizes(shape);
  auto impl = pool::make<TensorImpl>();
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  impl->storage = pool::make<Storage>(size_t(shape.numel()) * size_of(dtype), device);
  return Tensor(std::move(impl));
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto s = t.span<T>();
    std::fill(s.begin(), s.end(), convert_to<T>(value));
  });
  return t;
}

Tensor tensor(std::span<const double> values, const Shape& shape, DType dtype) {
  if (Index(values.size()) != shape.numel())
    fail(values.size(), " values do not fill the shape ", shape);
  Tensor t = empty(shape, dtype);
  store_run(t.data(), dtype, 1, t.numel(), values.data());
  return t;
}

Tensor tensor(std::initializer_list<double> values, DType dtype) {
  return tensor(std::span(values.begin(), values.size()), {Index(values.size())}, dtype);
}

Tensor arange(Index n, DType dtype) {
  Tensor t = empty({n}, dtype);
  for (Index i = 0; i < n; ++i) store_run(advance(t.data(), dtype, i), dtype, 1, 1, &i);
  return t;
}

Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, Index offset) {
  auto [first, end] = reach(shape, strides);
  Index held = Index(x.impl()->storage->bytes / size_of(x.dtype()));
  if (end > first && (first + offset < 0 || end + offset > held))
    fail("a view ", shape, " with strides ", strides, " at offset ", offset,
         " reaches outside its storage of ", held, " elements");
  auto impl = pool::make<TensorImpl>(*x.impl());
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->autograd = nullptr;
  impl->scalar = false;
  return Tensor(std::move(impl));
}

void copy_elements(const Tensor& from, const Tensor& to) {
  if (!to.is_contiguous() && overlaps_itself(to.shape(), to.strides()))
    fail("elements of the tensor ", to.shape(), " with strides ", to.strides(),
         " share memory (it is expanded, or a view of its kind), so it cannot be written to; "
         "clone() it first");
  if (disturb(from, to)) {
    Tensor between = empty(from.shape(), from.dtype(), from.device());
    copy_elements(from, between);
    return copy_elements(between, to);
  }
  copy(Arg{from.data(), from.dtype(), from.shape(), from.strides(), true},
       Arg{to.data(), to.dtype(), to.shape(), to.strides(), true});
}

namespace {

std::string shown(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", printable(v));
  return text;
}

void print(std::string& out, const std::vector<double>& v, const Shape& shape, int axis,
           size_t& at) {
  constexpr Index kEdge = 3;
  if (axis == shape.rank()) {
    out += shown(v[at++]);
    return;
  }
  Index n = shape[axis], inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  out += "[";
  for (Index i = 0; i < n; ++i) {
    if (i) out += ", ";
    if (n > 2 * kEdge + 2 && i == kEdge) {
      out += "..., ";
      at += size_t((n - 2 * kEdge) * inner);
      i = n - kEdge;
    }
    print(out, v, shape, axis + 1, at);
  }
  out += "]";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined";
  std::string out;
  size_t at = 0;
  print(out, x.to_vector(), x.shape(), 0, at);
  return out + " " + name_of(x.dtype()) + to_string(x.shape());
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace minim
