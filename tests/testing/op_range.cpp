// Whether a row's results and gradients are right at every exponent, not only around 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "minim/core/random.h"
#include "minim/testing/op_trial.h"

namespace minim::test {
namespace {

/// Rows that multiply several operands on the way: their exponents stay where those products fit
/// (and scores, of which a softmax is made, are told apart), and their gradients are differences of
/// products of all that the slope is made of.
struct Products {
  std::string_view name;
  int low, high;
};
constexpr Products kProducts[] = {{"scaled_dot_product_attention", -40, 8}};
const Products* products_of(const OpRow& row) {
  for (const Products& p : kProducts)
    if (p.name == row.name) return &p;
  return nullptr;
}

using Values = std::vector<std::vector<double>>;  // of each operand, or of each result

constexpr double kMove = 0x1p-26;  // by how much of itself a number is moved

/// A 64-bit draw for what is numbered (a, b, c).
uint64_t draw(uint64_t a, uint64_t b, uint64_t c) {
  const auto four = Philox::block(a, b, c);
  return uint64_t{four[0]} << 32 | four[1];
}

bool is_float(const OpRow& row, size_t k) {
  return row.operands[k].accepts == Accepts::floating && row.operands[k].domain != Domain::index;
}

struct Exponents {
  int low, high;
  explicit Exponents(DType d)
      : low(std::ilogb(info(d).tiniest)), high(std::ilogb(info(d).max) - 2) {}
  int count() const { return high - low + 1; }
  int any(uint64_t random) const { return low + int(random % uint64_t(count())); }
  int clamped(int e) const { return std::clamp(e, low, high); }
};

/// A number of about 2^e that the operand takes: a power of two, a neighbour of one, or any.
double placed(const Operand& operand, DType d, int e, uint64_t random) {
  const double ulp = std::ldexp(1.0, 1 - info(d).digits);
  const double kinds[] = {1, 1 + ulp, 2 - ulp, 1 + double(random >> 40) * 0x1p-24};
  const double m = kinds[random % 4];
  if (operand.domain == Domain::probability)
    return e < 0 ? std::ldexp(m, e) : 1 - std::ldexp(m, -std::min(e, info(d).digits - 2) - 2);
  return std::ldexp(operand.domain != Domain::positive && (random & 4) ? -m : m, e);
}

/// Results and gradients of a row, for the cotangents `g` of the results.
struct Answer {
  Values y, dx;
  std::vector<Tensor> out;
};
Answer answer(const Trial& trial, DType d, const Values& g, const Answer* rounded = nullptr) {
  const OpRow& row = trial.row;
  const std::vector<Tensor> xs = trial.operands(d, row.differentiable());
  manual_seed(20);
  std::vector<Tensor> out = call(row, xs, trial.example.attrs);
  Answer a;
  for (size_t o = 0; o < size_t(row.returned); ++o) {
    a.y.push_back(out[o].to_vector());
    a.out.push_back(out[o].detach().clone());
    if (rounded && row.saves.outputs >> o & 1) copy_elements(rounded->out[o], out[o]);
  }
  for (size_t o = 0; o < size_t(row.returned); ++o)
    if (is_floating(out[o].dtype()) && out[o].requires_grad())
      out[o].backward(tensor(g[o], out[o].shape(), out[o].dtype()), true);
  for (const Tensor& x : xs)
    a.dx.push_back(x.defined() && x.grad().defined() ? x.grad().to_vector()
                                                     : std::vector<double>());
  return a;
}

/// Multiples of 1/32 in [-2, 2), as many as there are results; none is 0.
Values cotangents(const Trial& trial) {
  Values all;
  const std::vector<Tensor> out = function_of(trial)(trial.operands(DType::f64, false));
  for (size_t o = 0; o < out.size(); ++o) {
    std::vector<double> g(size_t(out[o].numel()));
    for (size_t j = 0; j < g.size(); ++j) {
      const double v = double(draw(21, o, j) % 128) - 64;
      g[j] = j == 0 || v == 0 ? 1 : v / 32;
    }
    all.push_back(std::move(g));
  }
  return all;
}

/// What relative errors of 1 in all that goes in make of each number, to first order: the sum of
/// |dy/dx| |x|, by differences. A subnormal x counts as the smallest normal number: it has that
/// one's spacing.
class Condition {
 public:
  Condition(const Trial& trial, const Values& g, const Answer& exact, const Answer& rounded,
            double smallest_normal, bool elementwise)
      : base_(exact), y_(exact.y), dx_(exact.dx), elementwise_(elementwise) {
    for (Values* all : {&y_, &dx_})
      for (auto& numbers : *all)
        for (double& v : numbers) v = std::fabs(v);
    auto add = [&](const Trial& t, const Values& cotangent) {
      const Answer moved = answer(t, DType::f64, cotangent, &rounded);
      add_changes(moved.y, base_.y, y_), add_changes(moved.dx, base_.dx, dx_);
    };
    Trial moved = trial;
    auto move = [&](double& x) { x += kMove * std::max(std::fabs(x), smallest_normal); };
    for (size_t k = 0; k < moved.values.size(); ++k) {
      if (!is_float(trial.row, k)) continue;
      for (size_t i = 0; i < moved.values[k].size(); ++i) {
        move(moved.values[k][i]);
        if (elementwise && i + 1 < moved.values[k].size()) continue;
        add(moved, g);
        moved.values[k] = trial.values[k];
      }
    }
    if (elementwise || !trial.row.differentiable()) return;
    if (products_of(trial.row)) add_products(trial, g);
    for (size_t o = 0; o < g.size(); ++o) {  // results that backward reads
      if (!(trial.row.saves.outputs >> o & 1)) continue;
      for (size_t j = 0; j < g[o].size(); ++j) {
        Answer read = rounded;
        std::vector<double> y = rounded.out[o].to_vector();
        move(y[j]);
        read.out[o] = tensor(y, rounded.out[o].shape(), DType::f64);
        add_changes(answer(trial, DType::f64, g, &read).dx, base_.dx, dx_);
      }
    }
    Values turned = g;
    for (size_t o = 0; o < g.size(); ++o)
      for (size_t j = 0; j < g[o].size(); ++j) {
        turned[o][j] += kMove * std::fabs(g[o][j]);
        add(trial, turned);
        turned[o][j] = g[o][j];
      }
  }
  /// Of results and gradients that are no single elements' but sums: the largest of the tensor.
  double of_y(size_t o, size_t j) const { return elementwise_ ? y_[o][j] : largest(y_[o]); }
  double of_dx(size_t k, size_t i) const { return elementwise_ ? dx_[k][i] : largest(dx_[k]); }

 private:
  static double largest(const std::vector<double>& v) {
    return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
  }
  void add_products(const Trial& trial, const Values& g) {
    auto size = [](const std::vector<double>& v) {
      double most = 0;
      for (double x : v) most = std::max(most, std::fabs(x));
      return most;
    };
    for (size_t k = 0; k < dx_.size(); ++k) {
      double product = size(g[0]);
      for (size_t other = 0; other < trial.values.size(); ++other)
        if (other != k && trial.given(other) && is_float(trial.row, other))
          product *= size(trial.values[other]);
      for (double& v : dx_[k]) v += product;
    }
  }
  static void add_changes(const Values& moved, const Values& from, Values& sum) {
    for (size_t k = 0; k < sum.size(); ++k)
      for (size_t i = 0; i < sum[k].size(); ++i)
        sum[k][i] += std::fabs(moved[k][i] - from[k][i]) / kMove;
  }
  const Answer& base_;
  Values y_, dx_;
  bool elementwise_;
};

struct Bound {
  double c;           // the row's
  DType computed_in;  // f32 or f64
  size_t addends;     // of a sum, else 1: where one leaves the range, so may the sum
  double unit() const { return std::ldexp(1.0, -info(computed_in).digits); }
  /// Whether `got` is as right as the row promises, or the number not one that `stored` holds.
  bool holds(double got, double want, double condition, DType stored) const {
    const double noise = c * unit() * condition;
    const double most = std::min(info(stored).max, info(computed_in).max);
    if (!std::isfinite(want) || !std::isfinite(condition)) return true;
    if (std::fabs(want) + noise > most || (addends > 1 && condition > most)) return true;
    const double allowed = half_ulp(stored, std::fabs(want) + noise) + noise +
                           (c + double(addends)) * info(computed_in).tiniest / 2;
    return std::fabs(got - want) <= allowed;
  }
};

size_t elements(const Trial& trial) {
  size_t n = 0;
  for (const auto& v : trial.values) n += v.size();
  return n;
}

std::string operands_at(const Trial& trial, bool elementwise, size_t j) {
  std::ostringstream text;
  text.precision(9);
  for (size_t k = 0; k < trial.values.size(); ++k) {
    text << (k ? "; " : "") << trial.row.operands[k].name << " =";
    const auto& v = trial.values[k];
    for (size_t i = elementwise ? j : 0; i < (elementwise ? j + 1 : std::min<size_t>(6, v.size()));
         ++i)
      text << " " << v[i];
    if (!elementwise && v.size() > 6) text << " ...";
  }
  return text.str();
}

void compare(const Trial& trial, DType d, bool elementwise, Findings& findings) {
  const OpRow& row = trial.row;
  const Values g = cotangents(trial);
  const Answer low = answer(trial, d, g), exact = answer(trial, DType::f64, g, &low);
  const DType in = compute_in(d) == Compute::f64 ? DType::f64 : DType::f32;
  const double smallest_normal = in == DType::f32 ? 0x1p-126 : std::numeric_limits<double>::min();
  const Condition condition(trial, g, exact, low, smallest_normal, elementwise);
  const size_t addends = elementwise ? 1 : elements(trial);
  auto report = [&](const char* what, const std::string& of, size_t j, double got, double want) {
    std::ostringstream text;
    text.precision(9);
    text << trial.name() << " in " << name_of(d) << ": " << what << " " << of << "[" << j << "] is "
         << got << ", exactly " << want << "; " << operands_at(trial, elementwise, j);
    findings.push_back(text.str());
  };
  for (size_t o = 0; o < exact.y.size(); ++o) {
    const DType stored = low.out[o].dtype();
    if (!is_floating(stored)) continue;
    const Bound bound{row.error, in, addends};
    for (size_t j = 0; j < exact.y[o].size(); ++j)
      if (!bound.holds(low.y[o][j], exact.y[o][j], condition.of_y(o, j), stored)) {
        report("result", std::to_string(o), j, low.y[o][j], exact.y[o][j]);
        break;
      }
  }
  for (size_t k = 0; k < exact.dx.size(); ++k) {
    const Bound bound{row.error + 1, in, addends};
    for (size_t i = 0; i < exact.dx[k].size(); ++i)
      if (!bound.holds(low.dx[k][i], exact.dx[k][i], condition.of_dx(k, i), in)) {
        report("gradient of", row.operands[k].name, i, low.dx[k][i], exact.dx[k][i]);
        break;
      }
  }
}

/// Whether each result depends on the operands at its own place alone, for operands of one shape.
bool elementwise(const OpRow& row, const Example& example) {
  if (row.random || row.view || row.returned != 1) return false;
  constexpr Index n = 3;
  Example many = example, one = example;
  for (Shape& s : many.shapes) s = Shape{n};
  for (Shape& s : one.shapes) s = Shape{};
  try {
    NoGrad no_recording;
    const Trial all = make_trial(row, many);
    const std::vector<Tensor> xs = all.operands(DType::f32, false);
    const Tensor y = call(row, xs, example.attrs)[0];
    if (!(y.shape() == Shape{n})) return false;
    for (Index i = 0; i < n; ++i) {
      Trial single = make_trial(row, one);
      for (size_t k = 0; k < xs.size(); ++k) single.values[k] = {all.values[k][size_t(i)]};
      const Tensor v = call(row, single.operands(DType::f32, false), example.attrs)[0];
      if (v.to_vector()[0] != y.to_vector()[size_t(i)]) return false;
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Elementwise rows: 64 elements for each exponent; the operands have the same one, a near one or
/// any other.
Trial all_exponents(const OpRow& row, const Example& example, DType d) {
  constexpr int kEach = 64;
  const Exponents exponents(d);
  Example flat = example;
  for (Shape& s : flat.shapes) s = Shape{Index(exponents.count()) * kEach};
  Trial trial = make_trial(row, flat);
  for (size_t k = 0; k < trial.values.size(); ++k) {
    if (!is_float(row, k)) continue;
    for (size_t i = 0; i < trial.values[k].size(); ++i) {
      const uint64_t random = draw(22, k, i);
      const int mode = int(i % 4), same = exponents.low + int(i / kEach);
      const int e = k == 0 || mode == 0 ? same
                    : mode == 1         ? same + int(random >> 8 & 7) - 4
                                        : exponents.any(random >> 8);
      trial.values[k][i] = placed(row.operands[k], d, exponents.clamped(e), random);
    }
  }
  trial.round_to(d);
  return trial;
}

/// Other rows: operands of one magnitude, one operand apart from the others, the first against the
/// rest, and elements of all magnitudes up to one.
enum class Mix { together, apart, against, below };
Trial at_exponent(const Trial& from, DType d, int e, Mix mix, size_t which) {
  const Exponents exponents(d);
  Trial trial = from;
  for (size_t k = 0; k < trial.values.size(); ++k) {
    if (!is_float(trial.row, k)) continue;
    for (size_t i = 0; i < trial.values[k].size(); ++i) {
      const uint64_t random = draw(23, k, i);
      int at = e;
      if (mix == Mix::apart && k != which) at = 0;
      if (mix == Mix::against && k > 0) at = -e;
      if (mix == Mix::below) at -= int((random >> 8) % uint64_t(e - exponents.low + 1));
      trial.values[k][i] = placed(trial.row.operands[k], d, exponents.clamped(at), random);
    }
  }
  trial.round_to(d);
  return trial;
}

void sweep(const Trial& trial, DType d, Findings& findings) {
  constexpr int kStep = 9;
  Exponents exponents(d);
  if (const Products* p = products_of(trial.row))
    exponents.low = std::max(exponents.low, p->low), exponents.high = p->high;
  size_t operands = 0;
  for (size_t k = 0; k < trial.values.size(); ++k)
    operands += is_float(trial.row, k) && trial.given(k);
  for (int e = exponents.low; e < exponents.high + kStep; e += kStep) {
    const int at = std::min(e, exponents.high);
    compare(at_exponent(trial, d, at, Mix::together, 0), d, false, findings);
    compare(at_exponent(trial, d, at, Mix::below, 0), d, false, findings);
    if (operands < 2) continue;
    compare(at_exponent(trial, d, at, Mix::against, 0), d, false, findings);
    for (size_t k = 0; k < trial.values.size(); ++k)
      if (is_float(trial.row, k) && trial.given(k))
        compare(at_exponent(trial, d, at, Mix::apart, k), d, false, findings);
  }
}

/// Elementwise rows of one operand: each of the 65536 numbers of f16 and bf16, and inf and NaN.
void every_number(const OpRow& row, const Example& example, DType d, Findings& findings) {
  std::vector<double> x(65536);
  for (size_t u = 0; u < x.size(); ++u)
    x[u] = d == DType::f16 ? double(float(f16::from_bits(uint16_t(u))))
                           : double(float(bf16::from_bits(uint16_t(u))));
  NoGrad no_recording;
  auto f = [&](DType in) {
    return call(row, std::vector{tensor(x, {Index(x.size())}, in)}, example.attrs)[0];
  };
  const Tensor low = f(d);
  const DType stored = low.dtype();
  if (!is_floating(stored)) return;
  const double beyond = std::ldexp(1.0, std::ilogb(info(stored).max)) * 2;  // where inf stands
  const std::vector<double> got = low.to_vector(), want = f(DType::f64).to_vector();
  for (size_t u = 0; u < x.size(); ++u) {
    const double a = std::clamp(got[u], -beyond, beyond), b = std::clamp(want[u], -beyond, beyond);
    if (a == b || (std::isnan(b) ? std::isnan(a) : std::fabs(a - b) <= 2 * half_ulp(stored, b)))
      continue;
    std::ostringstream text;
    text.precision(9);
    text << row.name << " of " << name_of(d) << " " << x[u] << " is " << got[u] << ", exactly "
         << want[u] << ": more than an ulp away";
    return findings.push_back(text.str());
  }
}

}  // namespace

Findings check_range(const OpRow& row) {
  constexpr size_t kMostElements = 60;
  Findings findings;
  if (row.view) return findings;
  for (const Trial& trial : trials(row)) {
    if (elements(trial) == 0 || elements(trial) > kMostElements) continue;
    const bool each = elementwise(row, trial.example);
    if (each && row.operands.size() == 1)
      for (DType d : {DType::f16, DType::bf16}) every_number(row, trial.example, d, findings);
    for (DType d : {DType::f32, DType::bf16, DType::f16})
      if (each)
        compare(all_exponents(row, trial.example, d), d, true, findings);
      else
        sweep(trial, d, findings);
  }
  std::set<std::string> seen;  // elementwise rows have the same findings for each example
  std::erase_if(findings, [&](const std::string& f) { return !seen.insert(f).second; });
  return findings;
}

}  // namespace minim::test
