#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/core/dtype.h"
#include "minim/ops/composite.h"

using namespace minim;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// What a pattern stands for, from the definition of the format.
double decode(int pattern, int exponent_bits, bool infinities) {
  const int fraction_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (pattern & 127) >> fraction_bits;
  const int fraction = pattern & ((1 << fraction_bits) - 1);
  double v;
  if (infinities && exponent == (1 << exponent_bits) - 1)
    v = fraction ? NAN : kInf;
  else if (!infinities && (pattern & 127) == 127)
    v = NAN;
  else if (exponent == 0)
    v = std::ldexp(fraction, 1 - bias - fraction_bits);
  else
    v = std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return pattern & 128 ? -v : v;
}

template <class F>
void check_format(int exponent_bits, bool infinities) {
  int wrong = 0;
  std::vector<double> finite;  // from 0 up
  for (int p = 0; p < 256; ++p) {
    const F x = F::from_bits(uint8_t(p));
    const double want = decode(p, exponent_bits, infinities);
    if (std::isnan(want)) {
      wrong += !std::isnan(float(x)) || !std::isnan(float(F(float(x))));
      continue;
    }
    wrong += double(float(x)) != want || std::signbit(float(x)) != std::signbit(want);
    wrong += F(float(want)).u != p || F(want).u != p;
    if (p < 128 && std::isfinite(want)) finite.push_back(want);
  }
  // Around every middle of two neighbours: to the nearer one, and from the middle to the even one.
  for (size_t i = 0; i + 1 < finite.size(); ++i) {
    const double low = finite[i], high = finite[i + 1], middle = (low + high) / 2;
    wrong += double(float(F(middle))) != (i % 2 == 0 ? low : high);
    wrong += double(float(F(std::nextafter(middle, 0)))) != low;
    wrong += double(float(F(std::nextafter(middle, kInf)))) != high;
    wrong += double(float(F(std::nextafter(float(middle), 0.0f)))) != low;
    wrong += double(float(F(-middle))) != -(i % 2 == 0 ? low : high);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("all 256 patterns of both f8 types and every boundary between them convert exactly") {
  check_format<f8e4m3>(4, false);
  check_format<f8e5m2>(5, true);
}

TEST_CASE("f8 overflow is NaN in e4m3 and inf in e5m2") {
  CHECK(float(f8e4m3(464.0)) == 448);
  CHECK(std::isnan(float(f8e4m3(464.1))));
  CHECK(std::isnan(float(f8e4m3(kInf))));
  CHECK(float(f8e5m2(61439.0)) == 57344);
  CHECK(float(f8e5m2(61440.0)) == kInf);
  CHECK(float(f8e5m2(-1e30)) == -kInf);
}

TEST_CASE("f8 rounds the published cases") {
  const double e4m3[][2] = {{17, 16},         {18, 18},     {19, 20},   {.3, .3125},
                            {1. / 3, .34375}, {0x1p-10, 0}, {464, 448}, {0x1.0001p-10, 0x1p-9}};
  for (const auto& [from, to] : e4m3) CHECK(float(f8e4m3(from)) == to);
  const double e5m2[][2] = {{9, 8},       {10, 10},      {11, 12},       {.3, .3125},
                            {0x1p-17, 0}, {65535, kInf}, {57344, 57344}, {-65535, -kInf}};
  for (const auto& [from, to] : e5m2) CHECK(float(f8e5m2(from)) == to);
  CHECK(f8e4m3(.3).u == 0x2a);
  for (double v : {480., kInf, 1e6}) CHECK(f8e4m3(v).u == 0x7f);
  CHECK(f8e5m2(double(NAN)).u == 0x7f);
}

TEST_CASE("to_saturated keeps what is too large at the largest value and NaN as NaN") {
  const Tensor x = tensor({1e9, -1e9, kInf, 1.06, NAN}, DType::f32);
  for (DType d : {DType::f8e4m3, DType::f8e5m2, DType::f16}) {
    const std::vector<double> y = to_saturated(x, d).to(DType::f64).to_vector();
    CHECK(y[0] == info(d).max);
    CHECK(y[1] == -info(d).max);
    CHECK(y[2] == info(d).max);
    CHECK(std::fabs(y[3] - 1.06) < 0.1);
    CHECK(std::isnan(y[4]));
  }
}

TEST_CASE("f8 is for storage: views and casts work and arithmetic asks for a conversion") {
  const Tensor x = tensor({1, 2, 3, 500}, DType::f32).to(DType::f8e4m3).reshape({2, 2});
  CHECK(x.transpose(0, 1).to(DType::f32).slice(0, 0, 1).to_vector() == std::vector<double>{1, 3});
  CHECK_THROWS_WITH_AS(x + x, doctest::Contains("f8e4m3(2, 2), which is for storage only"), Error);
}
