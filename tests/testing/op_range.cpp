// Whether a row's results and gradients are right at every exponent, not only around 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include "minim/testing/op_condition.h"

namespace minim::test {
namespace {

using namespace detail;

constexpr int kEach = 64;  ///< elements of each exponent, in elementwise rows

struct Exponents {
  int low, high;
  explicit Exponents(DType d)
      : low(std::ilogb(info(d).tiniest)), high(std::ilogb(info(d).max) - 2) {}
  int count() const { return high - low + 1; }
  int any(uint64_t random) const { return low + int(random % uint64_t(count())); }
  int clamped(int e) const { return std::clamp(e, low, high); }
  double RangeShare::*part_of(int e) const {
    const int end = count() / 8;
    return e < low + end    ? &RangeShare::lowest
           : e > high - end ? &RangeShare::highest
                            : &RangeShare::between;
  }
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

struct Bound {
  double c;           // the row's
  DType computed_in;  // f32 or f64
  size_t addends;     // of a sum, else 1: where one leaves the range, so may the sum
  double unit() const { return std::ldexp(1.0, -info(computed_in).digits); }
  /// The error over the one that the row allows; 0 where the number is not one that `stored` holds.
  double share(double got, double want, double condition, DType stored) const {
    const double noise = c * unit() * condition;
    const double most = std::min(info(stored).max, info(computed_in).max);
    if (!std::isfinite(want) || !std::isfinite(condition)) return 0;
    if (std::fabs(want) + noise > most || (addends > 1 && condition > most)) return 0;
    const double allowed = half_ulp(stored, std::fabs(want) + noise) + noise +
                           (c + double(addends)) * info(computed_in).tiniest / 2;
    if (got == want) return 0;
    const double share = std::fabs(got - want) / allowed;
    return std::isnan(share) ? INFINITY : share;
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

struct Found {
  Findings findings;
  RangeShares shares;
};

/// @param e the exponent of all operands, or that of element 0 where each 64 have the next one
void compare(const Trial& trial, DType d, int e, bool elementwise, Found& found) {
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
    found.findings.push_back(text.str());
  };
  const Exponents exponents(d);
  RangeShare& shares = found.shares[d];
  auto holds = [&](size_t j, double share) {
    double& worst = shares.*exponents.part_of(elementwise ? e + int(j) / kEach : e);
    worst = std::max(worst, share);
    return share <= 1;
  };
  for (size_t o = 0; o < exact.y.size(); ++o) {
    const DType stored = low.out[o].dtype();
    if (!is_floating(stored)) continue;
    const Bound bound{row.error, in, addends};
    for (size_t j = 0; j < exact.y[o].size(); ++j)
      if (!holds(j, bound.share(low.y[o][j], exact.y[o][j], condition.of_y(o, j), stored))) {
        report("result", std::to_string(o), j, low.y[o][j], exact.y[o][j]);
        break;
      }
  }
  for (size_t k = 0; k < exact.dx.size(); ++k) {
    const Bound bound{row.error + 1, in, addends};
    for (size_t i = 0; i < exact.dx[k].size(); ++i)
      if (!holds(i, bound.share(low.dx[k][i], exact.dx[k][i], condition.of_dx(k, i), in))) {
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

void sweep(const Trial& trial, DType d, Found& found) {
  constexpr int kStep = 9;
  Exponents exponents(d);
  if (const Products* p = products_of(trial.row))
    exponents.low = std::max(exponents.low, p->low), exponents.high = p->high;
  size_t operands = 0;
  for (size_t k = 0; k < trial.values.size(); ++k)
    operands += is_float(trial.row, k) && trial.given(k);
  for (int e = exponents.low; e < exponents.high + kStep; e += kStep) {
    const int at = std::min(e, exponents.high);
    compare(at_exponent(trial, d, at, Mix::together, 0), d, at, false, found);
    compare(at_exponent(trial, d, at, Mix::below, 0), d, at, false, found);
    if (operands < 2) continue;
    compare(at_exponent(trial, d, at, Mix::against, 0), d, at, false, found);
    for (size_t k = 0; k < trial.values.size(); ++k)
      if (is_float(trial.row, k) && trial.given(k))
        compare(at_exponent(trial, d, at, Mix::apart, k), d, at, false, found);
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

Found measured(const OpRow& row) {
  constexpr size_t kMostElements = 60;
  Found found;
  if (row.view) return found;
  for (const Trial& trial : trials(row)) {
    if (elements(trial) == 0 || elements(trial) > kMostElements) continue;
    const bool each = elementwise(row, trial.example);
    if (each && row.operands.size() == 1)
      for (DType d : {DType::f16, DType::bf16}) every_number(row, trial.example, d, found.findings);
    for (DType d : {DType::f32, DType::bf16, DType::f16})
      if (each)
        compare(all_exponents(row, trial.example, d), d, Exponents(d).low, true, found);
      else
        sweep(trial, d, found);
  }
  std::set<std::string> seen;  // elementwise rows have the same findings for each example
  std::erase_if(found.findings, [&](const std::string& f) { return !seen.insert(f).second; });
  return found;
}

}  // namespace

Findings check_range(const OpRow& row) { return measured(row).findings; }
RangeShares range_shares(const OpRow& row) { return measured(row).shares; }

}  // namespace minim::test
