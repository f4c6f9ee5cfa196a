#include "minim/testing/op_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "minim/core/random.h"

namespace minim::test {
namespace {

constexpr uint64_t kSeed = 20;

double uniform(uint64_t stream, uint64_t i) {
  auto [a, b, c, d] = Philox::block(kSeed, stream, i);
  return uniform01(join(a, b));
}

double value_of(const Operand& operand, Index classes, uint64_t stream, uint64_t i) {
  double u = uniform(stream, i), x = 6 * u - 3;
  if (operand.accepts == Accepts::boolean) return u < 0.5;
  if (operand.accepts == Accepts::integer || operand.domain == Domain::index)
    return std::floor(u * double(std::max<Index>(1, classes)));
  switch (operand.domain) {
    case Domain::off_zero:
      return std::copysign(0.1 + std::fabs(x), x);
    case Domain::small:
      return x / 3;
    case Domain::positive:
      return 0.1 + std::fabs(x);
    case Domain::probability:
      return 0.05 + 0.9 * u;
    default:
      return x;
  }
}

/// As a cast makes it: what is too large is inf.
Tensor cast(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return tensor(values, shape, DType::f64).to(dtype);
}

DType dtype_of(const Operand& operand, DType floating) {
  if (operand.accepts == Accepts::boolean) return DType::boolean;
  if (operand.accepts == Accepts::integer || operand.domain == Domain::index) return DType::i64;
  return floating;
}

}  // namespace

std::string Trial::name() const {
  std::string text = row.name;
  for (const Shape& s : example.shapes) text += " " + (absent(s) ? "-" : to_string(s));
  return text;
}

bool Trial::given(size_t k) const { return !absent(example.shapes[k]); }

std::vector<Tensor> Trial::operands(DType d, bool grad) const {
  std::vector<Tensor> xs;
  for (size_t k = 0; k < row.operands.size(); ++k) {
    xs.push_back(given(k) ? cast(values[k], example.shapes[k], dtype_of(row.operands[k], d))
                          : Tensor());
    if (grad && given(k) && is_floating(xs[k].dtype())) xs[k].set_requires_grad();
  }
  return xs;
}

void Trial::round_to(DType d) {
  for (size_t k = 0; k < values.size(); ++k)
    if (given(k))
      values[k] = cast(values[k], example.shapes[k], dtype_of(row.operands[k], d)).to_vector();
}

Trial make_trial(const OpRow& row, const Example& example) {
  Trial trial{row, example, {}};
  for (size_t k = 0; k < row.operands.size(); ++k) {
    trial.values.emplace_back();
    if (absent(example.shapes[k])) continue;
    for (Index i = 0; i < example.shapes[k].numel(); ++i)
      trial.values[k].push_back(value_of(row.operands[k], example.classes, k, uint64_t(i)));
  }
  return trial;
}

std::vector<Trial> trials(const OpRow& row) {
  std::vector<Trial> all;
  for (const Example& example : row.examples()) all.push_back(make_trial(row, example));
  return all;
}

Trial scaled_up(const Trial& trial) {
  constexpr double kElements = 20000;
  double numel = 1, axes = 1;
  for (const Shape& s : trial.example.shapes) {
    if (absent(s)) continue;
    if (s.numel() == 0) return trial;
    numel = std::max(numel, double(s.numel()));
    axes = std::max(axes, double(s.rank()));
  }
  Index factor = Index(std::ceil(std::pow(kElements / numel, 1 / axes)));
  Example big = trial.example;
  for (Shape& s : big.shapes)
    for (int i = 0; i < s.rank(); ++i)
      if (s[i] > 1) s[i] *= factor;
  Trial larger = make_trial(trial.row, big);
  try {
    call(trial.row, larger.operands(DType::f32, false), big.attrs);
    return larger;
  } catch (const Error&) {
    return trial;
  }
}

const char* name_of(Layout layout) {
  constexpr const char* names[] = {"dense", "transposed", "stepped",
                                   "expanded along the first axis", "expanded along the last axis"};
  return names[size_t(layout)];
}

Tensor laid_out(const Tensor& x, Layout layout) {
  if (layout == Layout::dense || x.rank() == 0) return x.clone();
  if (layout == Layout::expanded_first || layout == Layout::expanded_last) {
    int axis = layout == Layout::expanded_first ? 0 : x.rank() - 1;
    if (x.numel() == 0) return x.clone();
    Strides strides = x.strides();
    strides[axis] = 0;
    return as_strided(x.clone(), x.shape(), strides, 0);
  }
  Index step = layout == Layout::stepped ? 2 : 1;
  Strides strides = x.shape();
  Index next = step;
  for (int i = 0; i < x.rank(); ++i) {
    int axis = layout == Layout::transposed ? i : x.rank() - 1 - i;
    strides[axis] = next;
    next *= std::max<Index>(1, x.shape()[axis]);
  }
  Tensor room = full({next + 1}, is_floating(x.dtype()) ? std::nan("") : 1, x.dtype());
  Tensor y = as_strided(room, x.shape(), strides, 1);
  copy_elements(x, y);
  return y;
}

Tensor cotangent(const Shape& shape, DType dtype, size_t output) {
  std::vector<double> g;
  for (Index i = 0; i < shape.numel(); ++i)
    g.push_back(std::floor(uniform(100 + output, uint64_t(i)) * 128 - 64) / 32);
  return tensor(g, shape, dtype);
}

Outcome forward_backward(const Trial& trial, const OpRow& row, const std::vector<Tensor>& xs,
                         const std::vector<Tensor>& leaves, const Between& between, Layout layout,
                         Cotangents how) {
  manual_seed(kSeed);
  Outcome result;
  result.out = call(row, xs, trial.example.attrs);
  if (between) between(result.out);
  for (size_t o = 0; o < size_t(row.returned); ++o) {
    const Tensor& y = result.out[o];
    if (!is_floating(y.dtype()) || !y.requires_grad()) continue;
    Tensor g = laid_out(cotangent(y.shape(), y.dtype(), o), layout);
    y.backward(how == Cotangents::dense ? g.clone() : g, true);
  }
  for (const Tensor& leaf : leaves) result.grads.push_back(leaf.defined() ? leaf.grad() : Tensor());
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  NoGrad no_recording;
  Tensor x = a.contiguous().on_host(), y = b.contiguous().on_host();
  return std::memcmp(x.data(), y.data(), size_t(x.numel()) * size_of(x.dtype())) == 0;
}

void compare_bits(const std::string& what, const Outcome& a, const Outcome& b, int results,
                  Findings& findings) {
  auto compare = [&](const char* part, size_t k, const Tensor& x, const Tensor& y) {
    if (!same_bits(x, y))
      findings.push_back(what + ": " + part + " " + std::to_string(k) + " is " + to_string(x) +
                         ", expected " + to_string(y));
  };
  for (size_t k = 0; k < size_t(results); ++k) compare("result", k, a.out[k], b.out[k]);
  for (size_t k = 0; k < a.grads.size(); ++k) compare("gradient", k, a.grads[k], b.grads[k]);
}

autograd::TensorFunction function_of(const Trial& trial) {
  return [&trial](const std::vector<Tensor>& xs) {
    manual_seed(kSeed);
    std::vector<Tensor> out = call(trial.row, xs, trial.example.attrs);
    out.resize(size_t(trial.row.returned));
    return out;
  };
}

Jacobian jacobian(const Trial& trial) {
  std::vector<Tensor> xs = trial.operands(DType::f64, false);
  Jacobian slopes{autograd::numeric_slopes(function_of(trial), xs), {}};
  std::vector<Tensor> out = function_of(trial)(xs);
  for (size_t o = 0; o < out.size(); ++o)
    if (is_floating(out[o].dtype()))
      for (double g : cotangent(out[o].shape(), DType::f64, o).to_vector())
        slopes.cotangent.push_back(g);
  return slopes;
}

void poison(const Tensor& shown) {
  if (!shown.defined() || shown.numel() == 0) return;
  Shape shape = shown.shape();  // of an expanded tensor, each element once
  for (int i = 0; i < shape.rank(); ++i)
    if (shown.strides()[i] == 0) shape[i] = 1;
  const Tensor x = as_strided(shown, shape, shown.strides(), shown.impl()->offset);
  std::vector<double> values = x.to_vector();
  double last = *std::max_element(values.begin(), values.end());
  for (double& v : values)
    v = is_floating(x.dtype()) ? std::nan("") : x.dtype() == DType::boolean ? v == 0 : last - v;
  copy_elements(tensor(values, x.shape(), x.dtype()), x);
}

}  // namespace minim::test
