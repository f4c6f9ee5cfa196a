// What fits is right, however large or small the operands: numbers that once were not, and f64. The
// rows' own tests compare with f64; f64 has no wider dtype to be compared with; the functors of
// pointwise rows have: they are compiled for long double too, which has f64's digits and 11 more,
// and 16 times its exponents.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "minim/core/math.h"

namespace minim::math {
using Long = long double;
inline Long fabs(Long x) { return std::fabs(x); }
inline Long exp(Long x) { return std::exp(x); }
inline Long exp_negative(Long x) { return std::exp(x); }
inline Long expm1(Long x) { return std::expm1(x); }
inline Long log(Long x) { return std::log(x); }
inline Long log1p(Long x) { return std::log1p(x); }
inline Long tanh(Long x) { return std::tanh(x); }
inline Long erf(Long x) { return std::erf(x); }
inline Long sqrt(Long x) { return std::sqrt(x); }
inline Long sin(Long x) { return std::sin(x); }
inline Long cos(Long x) { return std::cos(x); }
inline Long pow(Long x, Long y) { return std::pow(x, y); }
inline Long pow_slope(Long s, Long x, Long y) { return s * y * std::pow(x, y - 1); }
inline Long sigmoid(Long x) { return 1 / (1 + std::exp(-x)); }
inline Long exp_lifted(Long x) { return std::exp(x) * 0x1p64L; }
inline Long mills_ratio(Long a) {
  return std::erfc(a * std::sqrt(0.5L)) / 2 / std::exp(-a * a / 2);
}
}  // namespace minim::math

#include "minim/op_includes.h"
#include "minim/ops/functional.h"
#include "minim/ops/row.h"
#include "minim/testing/op_tests.h"
#include "minim/testing/op_trial.h"

using namespace minim;
using namespace minim::test;

namespace {

using Long = long double;
constexpr Long kMove = 0x1p-36L;

/// A pointwise functor at one place in long double: its result, and its slopes times g.
template <class F>
struct At {
  static constexpr size_t n = kOperands<F>;
  Long y, d[n] = {};
  At(const attrs_t<F>& attrs, const Long (&x)[n], Long g, Long y_read) {
    const Long* at[n];
    for (size_t k = 0; k < n; ++k) at[k] = &x[k];
    fill(attrs, at, g, y_read, std::make_index_sequence<n>{});
  }
  template <size_t... I>
  void fill(const attrs_t<F>& attrs, const Long* const* x, Long g, Long y_read,
            std::index_sequence<I...> all) {
    y = forward_at<F, Long>(attrs, x, 0, all);
    if constexpr (requires { F::vjp(attrs, g, y_read, *x[I]..., d); })
      F::vjp(attrs, g, y_read, *x[I]..., d);
    else if constexpr (requires { F::vjp(g, y_read, *x[I]..., d); })
      F::vjp(g, y_read, *x[I]..., d);
  }
};

double number(const Operand& operand, int exponent, uint64_t random) {
  const double m[] = {1, 1 + 0x1p-52, 2 - 0x1p-52, 1 + double(random >> 11) * 0x1p-53};
  if (operand.accepts == Accepts::boolean) return double(random & 1);
  if (operand.domain == Domain::probability)
    return exponent < 0 ? std::ldexp(m[random % 4], exponent)
                        : 1 - std::ldexp(m[random % 4], -std::min(exponent, 50) - 2);
  const bool negative = operand.domain != Domain::positive && (random & 4);
  return std::ldexp(negative ? -m[random % 4] : m[random % 4], exponent);
}

Trial at_every_exponent(const OpRow& row, const Example& example) {
  constexpr int kLow = -1074, kHigh = 1021, kEach = 12;
  Example flat = example;
  for (Shape& s : flat.shapes) s = Shape{(kHigh - kLow + 1) * kEach};
  Trial trial = make_trial(row, flat);
  std::mt19937_64 random(1);
  for (Index i = 0; i < flat.shapes[0][0]; ++i)
    for (size_t k = 0; k < trial.values.size(); ++k) {
      const int same = kLow + int(i / kEach), near = same + int(random() % 9) - 4,
                any = kLow + int(random() % uint64_t(kHigh - kLow + 1));
      const int e = k == 0 || i % 3 == 0 ? same : i % 3 == 1 ? near : any;
      trial.values[k][size_t(i)] =
          number(row.operands[k], std::clamp(e, kLow, kHigh), uint64_t(random()));
    }
  return trial;
}

/// Within half an ulp and c 2^-53 times the condition, where the number fits.
bool right(double got, Long want, Long condition, double c) {
  const Long noise = (c + 8) * 0x1p-53L * condition, most = std::numeric_limits<double>::max();
  if (!std::isfinite(want) || !std::isfinite(condition) || std::fabs(want) + noise > most)
    return true;
  const double near = double(std::fabs(want) + noise);
  return std::fabs(Long(got) - want) <= noise + half_ulp(DType::f64, near) + (c + 8) * 0x1p-1075L;
}

template <class F>
void check(const OpRow& row, const Example& example, Findings& findings) {
  constexpr size_t n = kOperands<F>;
  const Trial trial = at_every_exponent(row, example);
  const attrs_t<F>& attrs = example.attrs.as<attrs_t<F>>();
  const std::vector<Tensor> xs = trial.operands(DType::f64, row.differentiable);
  const Tensor y = call(row, xs, example.attrs)[0];
  if (!is_floating(y.dtype())) return;
  std::vector<double> g(size_t(y.numel())), got = y.to_vector();
  for (size_t i = 0; i < g.size(); ++i) g[i] = i % 2 ? 1 : -0.375;
  if (y.requires_grad()) y.backward(tensor(g, y.shape(), DType::f64));
  std::vector<std::vector<double>> dx(n);
  for (size_t k = 0; k < n; ++k)
    if (xs[k].grad().defined()) dx[k] = xs[k].grad().to_vector();
  size_t found = 0;
  for (size_t i = 0; i < got.size() && found < 3; ++i) {
    Long x[n], of_y = 0, of_d[n] = {};
    for (size_t k = 0; k < n; ++k) x[k] = trial.values[k][i];
    const At<F> exact(attrs, x, g[i], got[i]);
    for (size_t k = 0; k < n; ++k) {
      const Long from = x[k];
      x[k] += kMove * std::max<Long>(std::fabs(from), std::numeric_limits<double>::min());
      const At<F> moved(attrs, x, g[i], got[i]);
      x[k] = from;
      of_y += std::fabs(moved.y - exact.y) / kMove;
      for (size_t j = 0; j < n; ++j) of_d[j] += std::fabs(moved.d[j] - exact.d[j]) / kMove;
    }
    auto report = [&](const char* what, double is, Long want) {
      std::ostringstream text;
      text.precision(17);
      text << row.name << ": " << what << " is " << is << ", exactly " << want << ", at";
      for (size_t k = 0; k < n; ++k) text << " " << trial.values[k][i];
      findings.push_back(text.str()), ++found;
    };
    if (!right(got[i], exact.y, of_y + std::fabs(exact.y), row.error))
      report("the result", got[i], exact.y);
    for (size_t k = 0; k < n; ++k)
      if (!dx[k].empty() &&
          !right(dx[k][i], exact.d[k], of_d[k] + std::fabs(exact.d[k]), row.error + 1))
        report("a gradient", dx[k][i], exact.d[k]);
  }
}

template <class Struct>
void check_row(const OpRow& row, Findings& findings) {
  for (Example& example : row.examples()) {
    if (!(example.shapes[0] == Shape{37})) continue;
    if constexpr (detail::is_kind<Struct, op::Pointwise> && !Struct::spec.random) {
      check<Struct>(row, example, findings);
    } else if constexpr (requires(Struct * s) { []<class E>(op::PairLoss<E>*) {}(s); }) {
      auto attrs = example.attrs.as<attrs_t<Struct>>();
      if (attrs.reduction != Reduction::none) continue;
      [&]<class E>(op::PairLoss<E>*) { check<E>(row, example, findings); }((Struct*)nullptr);
    }
  }
}

}  // namespace

TEST_CASE("pointwise rows in f64: what fits is right at every exponent, against long double") {
  if constexpr (std::numeric_limits<Long>::max_exponent >= 4 * 1024) {
    Findings findings;
#define OP(name, Struct, ...) check_row<op::Struct>(Op::name, findings);
#include "minim/ops/ops.def"
#undef OP
    expect_none(findings);
  }
}

namespace {

/// The slopes of f by its operands, all of dtype d.
template <class F>
std::vector<double> slopes(F f, std::vector<double> at, DType d) {
  std::vector<Tensor> x;
  for (double v : at) x.push_back(tensor({v}, d).set_requires_grad());
  const Tensor y = f(x);
  y.backward(ones(y.shape(), y.dtype()));
  std::vector<double> all;
  for (const Tensor& t : x) all.push_back(t.grad().item());
  return all;
}

}  // namespace

TEST_CASE("R9: the slope of x / y by y is -x / y^2 where that fits, though y^2 does not") {
  const auto by_y = [](double x, double y, DType d) {
    return slopes([](auto& v) { return v[0] / v[1]; }, {x, y}, d)[1];
  };
  using doctest::Approx;
  for (DType d : {DType::f32, DType::bf16}) {
    const double error = d == DType::f32 ? 1e-6 : 0.02;  // of 1e20 in 8 bits
    CHECK(by_y(1e20, 1e20, d) * 1e20 == Approx(-1).epsilon(error));
    CHECK(by_y(1e-25, 1e-25, d) * 1e-25 == Approx(-1).epsilon(error));
    CHECK(by_y(0, 1e-30, d) == 0);
  }
  CHECK(by_y(1e-170, 1e-170, DType::f64) * 1e-170 == Approx(-1));
  CHECK(by_y(1e170, 1e170, DType::f64) * 1e170 == Approx(-1));
}

TEST_CASE("gelu and its approximation have the slopes 1 and 0 at numbers of any size") {
  for (bool tanh : {false, true})
    for (double x : {20.0, 1e10, 1e30, 3e38})
      for (double sign : {1.0, -1.0})
        CHECK(slopes([&](auto& v) { return gelu(v[0], {.tanh = tanh}); }, {sign * x}, DType::f32) ==
              std::vector<double>{sign > 0 ? 1.0 : 0.0});
}

TEST_CASE("R10: the negative tails of gelu, silu and sigmoid keep their digits") {
  using doctest::Approx;
  const auto gelu_of = [](double x, DType d) { return gelu(tensor({x}, d)).item(); };
  CHECK(gelu_of(-5, DType::f32) == Approx(-1.4332578593959731e-06).epsilon(1e-6).scale(0));
  CHECK(gelu_of(-6, DType::f32) == Approx(-5.919525870226207e-09).epsilon(1e-6).scale(0));
  CHECK(gelu_of(-12, DType::f32) == Approx(-2.1317785344932424e-32).epsilon(1e-5).scale(0));
  CHECK(gelu_of(-12, DType::bf16) == Approx(-2.1317785344932424e-32).epsilon(0x1p-8).scale(0));
  CHECK(gelu_of(-38, DType::f64) == Approx(-1.0964627768261380e-314).epsilon(1e-9).scale(0));
  CHECK(silu(tensor({-90})).item() == Approx(-90 * std::exp(-90.0)).epsilon(1e-5).scale(0));
  CHECK(sigmoid(tensor({-80}, DType::bf16)).item() ==
        Approx(std::exp(-80.0)).epsilon(0x1p-8).scale(0));
}

TEST_CASE(
    "a mean fits where the sum of its losses does not, and a slope where its power does not") {
  const Tensor x = full({8}, 1e38), zero = zeros({8});
  CHECK(l1(x, zero).item() == doctest::Approx(1e38));
  CHECK(slopes([](auto& v) { return pow(v[0], v[1]); }, {0x1p-149, 0x1p-149}, DType::f32)[0] == 1);
  CHECK(slopes([](auto& v) { return v[0] / v[1]; }, {0, 0x1p-130}, DType::f32)[1] == 0);
}
