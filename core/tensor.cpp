#include "minim/core/tensor.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ostream>

#include "minim/core/backend.h"
#include "minim/core/convert.h"
#include "minim/core/pool.h"

namespace minim {

Storage::Storage(size_t n, Device d)
    : data(backend(d).allocate(n, MemoryScope::current())),
      bytes(n),
      device(d),
      kind(MemoryScope::current()) {}
Storage::~Storage() { backend(device).release(data, bytes, kind); }

namespace {

/// The number of elements of a tensor of that shape.
Index check_sizes(const Shape& shape) {
  for (Index n : shape)
    if (n < 0) fail("a tensor cannot have the shape ", shape);
  return shape.numel();
}

/// Element numbers [first, end) that strides reach from element 0; {0, 0} where there is no
/// element.
struct Reach {
  Index first = 0, end = 0;
};
Reach reach(const Shape& shape, const Strides& strides) {
  if (shape.numel() == 0) return {};
  Reach r{0, 1};
  for (int i = 0; i < shape.rank(); ++i)
    (strides[i] < 0 ? r.first : r.end) += (shape[i] - 1) * strides[i];
  return r;
}

/// The same of what a caller asks for. @throws Error where a number overflows on the way.
Reach checked_reach(const Shape& shape, const Strides& strides, Index offset) {
  const bool any = check_sizes(shape) > 0;
  Reach r{0, any};
  bool overflows = strides.rank() != shape.rank();
  for (int i = 0; !overflows && i < shape.rank(); ++i) {
    if (shape[i] <= 1) continue;
    Index whole;  // a step more than is reached: what loops may add up to
    overflows = __builtin_mul_overflow(shape[i], strides[i], &whole);
    Index& end = strides[i] < 0 ? r.first : r.end;
    overflows = overflows || __builtin_add_overflow(end, whole, &end);
    if (!overflows) end -= strides[i];
  }
  if (!any) r = {};
  overflows = overflows || __builtin_add_overflow(r.first, offset, &r.first) ||
              __builtin_add_overflow(r.end, offset, &r.end);
  if (overflows)
    fail("a view ", shape, " cannot have the strides ", strides, " and the offset ", offset,
         strides.rank() != shape.rank() ? ": one stride is needed for each axis"
                                        : ", which are more than any storage holds");
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

Tensor Tensor::scalar(const detail::Number& v) {
  Tensor t = empty({}, v.dtype(), kHost);
  t.impl()->scalar = true;
  if (v.is_real())
    *static_cast<double*>(t.data()) = v.real();
  else if (v.dtype() == DType::i64)
    *static_cast<int64_t*>(t.data()) = v.integer();
  else
    *static_cast<bool*>(t.data()) = v.integer() != 0;
  return t;
}

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

Tensor Tensor::on_host() const {
  if (device() == kHost) return *this;
  const Tensor copy = empty(shape(), dtype(), kHost);
  copy_elements(*this, copy);
  return copy;
}

Arg on_host(const Arg& x, Tensor& keep) {
  if (x.device == kHost || !x.data) return x;
  keep = empty(x.shape, x.dtype, kHost);
  copy(x, arg_of(keep));
  return arg_of(keep);
}

void Tensor::check_span(DType wanted) const {
  if (!(device() == kHost))
    fail("span asked of a tensor on ", backend(device()).name,
         ", whose memory the host cannot read; call .to(kHost) first");
  if (wanted != dtype())
    fail("span of ", name_of(wanted), " asked of a ", name_of(dtype()),
         " tensor; convert with .to()");
  if (!is_contiguous())
    fail("span asked of a strided view ", shape(), "; call .contiguous() first");
}

detail::Number Tensor::number() const {
  if (numel() != 1) fail("item() needs one element, the tensor has shape ", shape());
  const Tensor x = on_host();
  return visit(dtype(), [&]<class T>(detail::Tag<T>) {
    const T v = *static_cast<const T*>(x.data());
    if constexpr (std::is_integral_v<T>)
      return detail::Number(v);
    else
      return detail::Number(double(v));
  });
}

void Tensor::fail_item(const detail::Number& v, bool wanted_bool) {
  std::ostringstream text;
  text.precision(17);
  text << v;
  fail("item() of the value ", text.str(), " was asked for as a ",
       wanted_bool ? "bool, which is 0 or 1" : "type of number that does not hold it",
       "; convert the tensor first with .to(), or ask for another type");
}

std::vector<double> Tensor::to_vector() const {
  Tensor dense = empty(shape(), DType::f64, kHost);
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

Tensor full(const Shape& shape, const detail::Number& value, DType dtype, Device device) {
  detail::check_number("full", value, dtype);
  Tensor t = empty(shape, dtype, device);
  backend(device).fill(arg_of(t), value);
  return t;
}

namespace {

/// What the host has made.
Tensor moved(const Tensor& x, Device device) {
  if (device == kHost) return x;
  const Tensor there = empty(x.shape(), x.dtype(), device);
  copy_elements(x, there);
  return there;
}

template <class A>
Tensor from_values(std::span<const A> values, const Shape& shape, DType dtype, Device device) {
  if (Index(values.size()) != shape.numel())
    fail(values.size(), " values do not fill the shape ", shape);
  Tensor t = empty(shape, dtype, kHost);
  if (dtype != dtype_for<A>() && dtype != DType::boolean)
    for (const A& v : values) detail::check_number("tensor", v, dtype, false);
  store_run(t.data(), dtype, 1, t.numel(), values.data());
  return moved(t, device);
}

}  // namespace

Tensor tensor(std::span<const double> values, const Shape& shape, DType dtype, Device device) {
  return from_values(values, shape, dtype, device);
}
Tensor tensor(std::span<const int64_t> values, const Shape& shape, DType dtype, Device device) {
  return from_values(values, shape, dtype, device);
}

Tensor tensor(std::initializer_list<double> values, DType dtype) {
  return tensor(std::span(values.begin(), values.size()), {Index(values.size())}, dtype);
}

Tensor arange(Index n, DType dtype, Device device) {
  Tensor t = empty({n}, dtype, kHost);
  if (n > 0) detail::check_number("arange", n - 1, dtype);
  for (Index i = 0; i < n; ++i) store_run(advance(t.data(), dtype, i), dtype, 1, 1, &i);
  return moved(t, device);
}

Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, Index offset) {
  auto [first, end] = checked_reach(shape, strides, offset);
  Index held = Index(x.impl()->storage->bytes / size_of(x.dtype()));
  if (shape.numel() > 0 && (first < 0 || end > held))
    fail("a view ", shape, " with strides ", strides, " at offset ", offset,
         " reaches outside its storage of ", held, " elements");
  auto impl = pool::make<TensorImpl>(*x.impl());
  impl->shape = shape;
  impl->strides = strides;
  impl->offset = shape.numel() > 0 ? offset : 0;  // no element: it lies anywhere
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
  copy(arg_of(from), arg_of(to));
}

namespace {

/// The fewest digits that read back as v in its dtype.
template <class T>
std::string shown(T v) {
  char text[40];
  if constexpr (std::is_same_v<T, bool>) {
    return v ? "1" : "0";
  } else if constexpr (NarrowFloat<T>) {
    const double exact = double(v);
    for (int digits = 1;; ++digits) {
      auto [end, error] = std::to_chars(text, text + sizeof text, printable(exact),
                                        std::chars_format::general, digits);
      double read = exact;
      std::from_chars(text, end, read);
      if (float(T(read)) == float(v) || exact != exact) return {text, end};
    }
  } else {
    return {text, std::to_chars(text, text + sizeof text, printable(v)).ptr};
  }
}

template <class T>
void print(std::string& out, const T* v, const Shape& shape, int axis, size_t& at) {
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
  Tensor dense = x;
  if (!x.is_contiguous() || !(x.device() == kHost))
    copy_elements(x, dense = empty(x.shape(), x.dtype(), kHost));
  visit(x.dtype(), [&]<class T>(detail::Tag<T>) {
    print(out, static_cast<const T*>(dense.data()), x.shape(), 0, at);
  });
  return out + " " + name_of(x.dtype()) + to_string(x.shape());
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace minim
