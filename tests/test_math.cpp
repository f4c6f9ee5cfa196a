#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "minim/core/math.h"

namespace m = minim::math;
using minim::bits;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  double ulps;
  float (*ours)(float);
  double (*exact)(double);
  void (*loop)(const float* x, float* y, int n);
};

#define MINIM_FUNCTION(name, ulps, exact)                                                       \
  Function {                                                                                    \
#name, ulps, [](float x) { return m::name(x); }, [](double x) -> double { return exact; },    \
        [](const float* from, float* to, int n) {                                                 \
          for (int i = 0; i < n; ++i) to[i] = m::name(from[i]);                                   \
        } \
  }
const std::array kFunctions{
    MINIM_FUNCTION(exp, 2, std::exp(x)),
    MINIM_FUNCTION(expm1, 2, std::expm1(x)),
    MINIM_FUNCTION(log, 2, std::log(x)),
    MINIM_FUNCTION(log1p, 2, std::log1p(x)),
    MINIM_FUNCTION(sin, 1, std::sin(x)),
    MINIM_FUNCTION(cos, 1, std::cos(x)),
    MINIM_FUNCTION(tanh, 2, std::tanh(x)),
    MINIM_FUNCTION(erf, 2, std::erf(x)),
    MINIM_FUNCTION(rsqrt, 2, 1 / std::sqrt(x)),
    MINIM_FUNCTION(sigmoid, 3, x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x))),
};
#undef MINIM_FUNCTION

double ulp_at(double v) {
  if (std::fabs(v) < 0x1p-126) return 0x1p-149;
  int exponent;
  std::frexp(v, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

/// How far y is from the true value t, in ulp; where t rounds to inf or NaN, y must be that.
double error_in_ulps(float y, double t) {
  float rounded = float(t);
  if (std::isnan(rounded)) return std::isnan(y) ? 0 : kInf;
  if (std::isinf(rounded)) return y == rounded ? 0 : kInf;
  return std::isfinite(y) ? std::fabs(double(y) - t) / ulp_at(t) : kInf;
}

bool same(float a, float b) { return bits<uint32_t>(a) == bits<uint32_t>(b); }

}  // namespace

TEST_CASE(
    "float functions are within their ulps of the double ones on a grid over all bit patterns") {
  for (const Function& f : kFunctions) {
    double worst = 0;
    float where = 0;
    for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 4099) {
      float x = bits<float>(uint32_t(u));
      double error = error_in_ulps(f.ours(x), f.exact(double(x)));
      if (error > worst) worst = error, where = x;
    }
    INFO(f.name << " at " << where);
    CHECK(worst <= f.ulps);
  }
}

TEST_CASE("float functions are within their ulps on a dense grid where activations are") {
  for (const Function& f : kFunctions) {
    double worst = 0;
    float where = 0;
    for (int i = -200000; i <= 200000; ++i) {
      float x = float(i) * 1e-4f;
      double error = error_in_ulps(f.ours(x), f.exact(double(x)));
      if (error > worst) worst = error, where = x;
    }
    INFO(f.name << " at " << where);
    CHECK(worst <= f.ulps);
  }
}

TEST_CASE("a loop over any number of elements gives the bits of a call per element") {
  for (const Function& f : kFunctions)
    for (int n = 1; n <= 40; ++n) {
      std::vector<float> x(static_cast<size_t>(n)), y(x);
      for (int i = 0; i < n; ++i) x[size_t(i)] = -9.0f + 0.4637f * float(i) + 0.01f * float(n);
      f.loop(x.data(), y.data(), n);
      for (size_t i = 0; i < x.size(); ++i) {
        INFO(f.name << " of " << x[i] << ", element " << i << " of " << n);
        CHECK(bool(same(y[i], f.ours(x[i])) || (std::isnan(y[i]) && std::isnan(f.ours(x[i])))));
      }
    }
}

TEST_CASE("exp of what is not positive has the bits of exp") {
  for (uint64_t u = uint64_t{1} << 31; u < uint64_t{1} << 32; u += 4099) {
    const float x = bits<float>(uint32_t(u));
    if (same(m::exp_negative(x), m::exp(x)) || std::isnan(x)) continue;
    FAIL_CHECK("at ", x);
  }
  CHECK(m::exp_negative(0.0f) == 1.0f);
  CHECK(std::isnan(m::exp_negative(kNaN)));
}

TEST_CASE("exp overflows, underflows gradually and passes NaN") {
  CHECK(m::exp(88.7228f) < kInf);
  CHECK(m::exp(88.72284f) == kInf);
  CHECK(m::exp(89.5f) == kInf);
  CHECK(m::exp(kInf) == kInf);
  CHECK(m::exp(-kInf) == 0.0f);
  CHECK(m::exp(-200.0f) == 0.0f);
  CHECK(m::exp(0.0f) == 1.0f);
  CHECK(m::exp(-0.0f) == 1.0f);
  CHECK(m::exp(-103.0f) == float(std::exp(-103.0)));
  CHECK(m::exp(-103.0f) > 0.0f);
  CHECK(std::isnan(m::exp(kNaN)));
}

TEST_CASE("log of zero, of negative, of subnormal and of infinite numbers") {
  CHECK(m::log(0.0f) == -kInf);
  CHECK(m::log(-0.0f) == -kInf);
  CHECK(std::isnan(m::log(-1e-40f)));
  CHECK(std::isnan(m::log(-kInf)));
  CHECK(std::isnan(m::log(kNaN)));
  CHECK(m::log(kInf) == kInf);
  CHECK(same(m::log(1.0f), 0.0f));
  CHECK(m::log(0x1p-149f) == doctest::Approx(-149 * std::log(2.0)));
}

TEST_CASE("log1p and expm1 keep small arguments and their sign, and meet their limits") {
  for (float x : {0.0f, -0.0f, 1e-40f, -1e-40f, 1e-20f, -1e-10f}) {
    CHECK(same(m::log1p(x), x));
    CHECK(same(m::expm1(x), x));
  }
  CHECK(m::log1p(-1.0f) == -kInf);
  CHECK(std::isnan(m::log1p(-1.0000001f)));
  CHECK(m::log1p(kInf) == kInf);
  CHECK(m::expm1(-kInf) == -1.0f);
  CHECK(m::expm1(kInf) == kInf);
  CHECK(std::isnan(m::log1p(kNaN)));
  CHECK(std::isnan(m::expm1(kNaN)));
}

TEST_CASE("tanh and erf are odd, keep the sign of zero and saturate at one") {
  for (float (*f)(float) :
       {+[](float x) { return m::tanh(x); }, +[](float x) { return m::erf(x); }}) {
    CHECK(same(f(0.0f), 0.0f));
    CHECK(same(f(-0.0f), -0.0f));
    CHECK(f(kInf) == 1.0f);
    CHECK(f(-kInf) == -1.0f);
    CHECK(f(1e30f) == 1.0f);
    CHECK(std::isnan(f(kNaN)));
    for (float x = 0; x < 12; x += 0.0371f) {
      CHECK(f(-x) == -f(x));
      CHECK(f(x) <= 1.0f);
    }
  }
}

TEST_CASE("sigmoid neither overflows nor loses its tail") {
  CHECK(m::sigmoid(0.0f) == 0.5f);
  CHECK(m::sigmoid(kInf) == 1.0f);
  CHECK(same(m::sigmoid(-kInf), 0.0f));
  CHECK(m::sigmoid(-100.0f) == float(std::exp(-100.0)));
  CHECK(m::sigmoid(-700.0) == doctest::Approx(std::exp(-700.0)));
  CHECK(std::isnan(m::sigmoid(kNaN)));
}

TEST_CASE(
    "float sin and cos hold near multiples of pi / 2, and at the hardest and largest numbers") {
  double worst = 0;
  auto check = [&](float x) {
    worst = std::max({worst, error_in_ulps(m::sin(x), std::sin(double(x))),
                      error_in_ulps(m::cos(x), std::cos(double(x)))});
  };
  for (int k = 0; k < 300000; ++k)
    for (int d : {-1, 0, 1})
      check(bits<float>(bits<uint32_t>(float(k * 1.5707963267948966)) + uint32_t(d)));
  check(16367173.0f * 0x1p72f);  // 1.6e-9 from a multiple
  for (uint32_t u = 0x5a000000u; u < 0x7f800000u; u += 997) check(bits<float>(u));
  CHECK(worst <= 1);
  CHECK(same(m::sin(-0.0f), -0.0f));
  CHECK(same(m::sin(-1e-40f), -1e-40f));
  CHECK(m::cos(1e-40f) == 1.0f);
  CHECK(std::isnan(m::sin(kInf)));
  CHECK(std::isnan(m::cos(-kInf)));
}

TEST_CASE(
    "float pow is within one ulp of the double one where results are ordinary and at all bits") {
  double worst = 0;
  uint32_t seed = 1;
  auto random = [&] { return seed = seed * 1664525u + 1013904223u; };
  for (int i = 0; i < 1500000; ++i) {
    float x = bits<float>(random() ^ random() >> 16), y = bits<float>(random() ^ random() >> 16);
    if (i % 3 == 1) y = float((double(random()) * 0x1p-32 * 320 - 160) / std::log2(std::fabs(x)));
    if (i % 3 == 2)
      x = 1 + float(random() >> 8) * 0x1p-30f, y = float(random() >> 8) * 0x1p-7f - 65536;
    worst = std::max(worst, error_in_ulps(m::pow(x, y), std::pow(double(x), double(y))));
  }
  CHECK(worst <= 1);
  std::vector<float> x(53), y(53), z(53);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i) - 9, y[i] = float(i % 7) * 0.5f - 1;
  for (size_t i = 0; i < x.size(); ++i) z[i] = m::pow(x[i], y[i]);
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(bool(same(z[i], m::pow(x[i], y[i])) || std::isnan(z[i])));
}

TEST_CASE("float pow is std::pow rounded, with its special cases") {
  const float values[] = {0.0f,  -0.0f, 1.0f,   -1.0f, 2.0f,  -2.0f, 3.0f,   -3.0f,   0.5f,
                          -0.5f, 1e30f, -1e30f, kInf,  -kInf, kNaN,  1e-40f, -1e-40f, 0x1p24f};
  for (float x : values)
    for (float y : values) {
      float expected = float(std::pow(double(x), double(y)));
      INFO(x << " to the " << y);
      CHECK(
          bool(same(m::pow(x, y), expected) || (std::isnan(expected) && std::isnan(m::pow(x, y)))));
    }
  CHECK(m::pow(-2.0f, 3.0f) == -8.0f);
  CHECK(std::isnan(m::pow(-2.0f, 0.5f)));
}

TEST_CASE("select, fabs, copysign and sqrt do what they say for float and double") {
  CHECK(m::select(true, 1.0f, 2.0f) == 1.0f);
  CHECK(m::select(false, 1.0, 2.0) == 2.0);
  CHECK(same(m::fabs(-0.0f), 0.0f));
  CHECK(m::fabs(-3.0) == 3.0);
  CHECK(same(m::copysign(2.0f, -0.0f), -2.0f));
  CHECK(m::sqrt(2.0f) == std::sqrt(2.0f));
  CHECK(std::isnan(m::sqrt(-1.0)));
  CHECK(m::rsqrt(4.0) == 0.5);
}
