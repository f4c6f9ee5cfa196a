#include "minim/core/tensor.h"

#include <cmath>
#include <cstdio>
#include <ostream>

#include "minim/core/convert.h"
#include "minim/core/op_args.h"

namespace minim {

Storage::Storage(size_t n, Device d)
    : data(memory::allocate(n, d, MemoryScope::current())),
      bytes(n),
      device(d),
      kind(MemoryScope::current()) {}
Storage::~Storage() { memory::release(data, bytes, device, kind); }

namespace {

Tensor number(double v, DType dtype) {
  Tensor t = full({}, v, dtype);
  t.impl()->scalar = true;
  return t;
}

}  // namespace

Tensor::Tensor(double v) : Tensor(number(v, DType::f64)) {}
Tensor::Tensor(int64_t v) : Tensor(empty({}, DType::i64)) {
  impl_->scalar = true;
  *static_cast<int64_t*>(data()) = v;
}
Tensor::Tensor(bool v) : Tensor(number(v, DType::boolean)) {}

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
  return {dtype(), impl_->scalar ? Rank::scalar : rank() == 0 ? Rank::zero_dim : Rank::dimensioned};
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
  for (Index n : shape)
    if (n < 0) fail("a tensor cannot have the shape ", shape);
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  impl->storage = std::make_shared<Storage>(size_t(shape.numel()) * size_of(dtype), device);
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
  auto impl = std::make_shared<TensorImpl>(*x.impl());
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = offset;
  impl->autograd = nullptr;
  impl->scalar = false;
  return Tensor(std::move(impl));
}

void copy_elements(const Tensor& from, const Tensor& to) {
  copy(Arg{from.data(), from.dtype(), from.shape(), from.strides(), true},
       Arg{to.data(), to.dtype(), to.shape(), to.strides(), true});
}

namespace {

std::string shown(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
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
