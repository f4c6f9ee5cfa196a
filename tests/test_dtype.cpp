#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "minim/core/convert.h"
#include "minim/core/promotion.h"
#include "minim/core/random.h"
#include "minim/core/tensor.h"

using namespace minim;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

/// What a pattern of 16 bits stands for, from the definition of the format.
double decode(uint16_t u, int exponent_bits) {
  const int digits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (u & 0x7fff) >> digits, fraction = u & ((1 << digits) - 1);
  double magnitude;
  if (exponent == (1 << exponent_bits) - 1)
    magnitude = fraction ? kNaN : kInf;
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, 1 - bias - digits);
  else
    magnitude = std::ldexp(fraction + (1 << digits), exponent - bias - digits);
  return u & 0x8000 ? -magnitude : magnitude;
}

/// v rounded to `digits` significant bits, ties to even, exponents from 2^lowest: exact scaling and
/// nearbyint.
double rounded(double v, int digits, int lowest, double largest) {
  if (!std::isfinite(v) || v == 0) return v;
  const int ulp = std::max(std::ilogb(v), lowest) - digits + 1;
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -ulp)), ulp);
  return std::fabs(r) > largest ? std::copysign(kInf, v) : r;
}

template <class H>
constexpr int kExponentBits = std::is_same_v<H, f16> ? 5 : 8;
template <class H>
double reference(double v) {
  return std::is_same_v<H, f16> ? rounded(v, 11, -14, 65504) : rounded(v, 8, -126, 0x1.fep127);
}

template <class H>
void check_all_patterns() {
  int wrong = 0;
  for (uint32_t p = 0; p < 65536; ++p) {
    const H h = H::from_bits(uint16_t(p));
    const double want = decode(uint16_t(p), kExponentBits<H>);
    if (std::isnan(want)) {
      wrong += !std::isnan(float(h)) || !std::isnan(float(H(float(h)))) ||
               !std::isnan(float(H(double(float(h)))));
      continue;
    }
    wrong += double(float(h)) != want || std::signbit(float(h)) != std::signbit(want);
    wrong += H(float(h)).u != p || H(want).u != p;
  }
  CHECK(wrong == 0);
}

/// Around every finite value: the middle to the next one, and a hair to either side of it.
template <class H>
void check_boundaries() {
  int wrong = 0;
  const auto check = [&](double v) {
    const double got = float(H(v)), want = reference<H>(v);
    wrong += got != want || std::signbit(got) != std::signbit(want);
    const float f = float(v);
    if (double(f) == v) wrong += float(H(f)) != float(H(v));
  };
  for (uint32_t p = 0; p + 1 < 0x7fff; ++p) {
    const double a = decode(uint16_t(p), kExponentBits<H>);
    double b = decode(uint16_t(p + 1), kExponentBits<H>);
    if (!std::isfinite(a)) break;
    if (!std::isfinite(b))
      b = 2 * a - decode(uint16_t(p - 1), kExponentBits<H>);  // where it would be
    const double middle = a + (b - a) / 2;
    for (double v : {middle, std::nextafter(middle, 0), std::nextafter(middle, kInf), a,
                     std::nextafter(a, 0), std::nextafter(a, kInf), a + (b - a) * 0.3}) {
      check(v);
      check(-v);
    }
  }
  CHECK(wrong == 0);
}

template <class H>
void check_random() {
  int wrong = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const auto [a, b, c, d] = Philox::block(7, 0, i);
    const double v = std::ldexp(2 * uniform01(join(a, b)) - 1, int(c % 300) - 150);
    wrong += double(float(H(v))) != reference<H>(v);
    const double f = float(v);
    wrong += double(float(H(float(f)))) != reference<H>(f);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("f16: all 65536 patterns survive the way to float and double and back") {
  check_all_patterns<f16>();
}
TEST_CASE("bf16: all 65536 patterns survive the way to float and double and back") {
  check_all_patterns<bf16>();
}
TEST_CASE("f16 rounds to nearest, ties to even, around every value") { check_boundaries<f16>(); }
TEST_CASE("bf16 rounds to nearest, ties to even, around every value") { check_boundaries<bf16>(); }
TEST_CASE("f16 rounds random floats and doubles once") { check_random<f16>(); }
TEST_CASE("bf16 rounds random floats and doubles once") { check_random<bf16>(); }

TEST_CASE("doubles are not rounded twice on the way to 16 bits") {
  CHECK(float(f16(1 + 0x1p-11 + 0x1p-40)) == 1.0009765625f);
  CHECK(float(f16(float(1 + 0x1p-11 + 0x1p-40))) ==
        1.0f);  // by way of float the difference is lost
  CHECK(float(bf16(1 + 0x1p-8 + 0x1p-40)) == 1.0078125f);
  CHECK(tensor({1 + 0x1p-11 + 0x1p-40}, DType::f16).item() == 1.0009765625);
  CHECK(tensor({1 + 0x1p-11 + 0x1p-40}, DType::f64).to(DType::f16).item() == 1.0009765625);
}

TEST_CASE("f16 rounds the published cases") {
  const double cases[][2] = {{1 + 0x1p-11, 1},
                             {1 + 3 * 0x1p-11, 1.001953125},
                             {1 + 0x1p-11 + 0x1p-20, 1.0009765625},
                             {2049, 2048},
                             {2051, 2052},
                             {0.1, 0.0999755859375},
                             {1e-5, 1.0013580322265625e-05},
                             {0x1p-25, 0},
                             {2.9802326e-08, 0x1p-24},
                             {65519.996, 65504},
                             {65520, kInf},
                             {-65520, -kInf},
                             {6.103515625e-05, 0x1p-14},
                             {6.097555160522461e-05, 0x1.ff8p-15}};
  for (const auto& [from, to] : cases) CHECK(double(float(f16(from))) == to);
}

TEST_CASE("bf16 rounds the published cases") {
  const double cases[][2] = {{1 + 0x1p-8, 1},
                             {1 + 3 * 0x1p-8, 1.015625},
                             {257, 256},
                             {259, 260},
                             {0.1, 0.10009765625},
                             {0.999, 1},
                             {0.9999, 1},
                             {std::numeric_limits<float>::max(), kInf},
                             {3.3895313892515355e38, 3.3895313892515355e38}};
  for (const auto& [from, to] : cases) CHECK(double(float(bf16(from))) == to);
  CHECK(float(bf16(1e-40)) == doctest::Approx(9.18e-41).epsilon(1e-3).scale(0));
}

TEST_CASE("what is known of each dtype is true of it") {
  CHECK(double(float(f16::from_bits(0x7bff))) == info(DType::f16).max);
  CHECK(double(float(bf16::from_bits(0x7f7f))) == info(DType::bf16).max);
  CHECK(double(float(f16::from_bits(1))) == info(DType::f16).tiniest);
  CHECK(double(float(bf16::from_bits(1))) == info(DType::bf16).tiniest);
  for (size_t d = 0; d < kDTypes; ++d) {
    CHECK(dtype_named(name_of(DType(d))) == DType(d));
    CHECK(visit(DType(d), [](auto tag) { return sizeof(typename decltype(tag)::type); }) ==
          size_of(DType(d)));
  }
  CHECK_THROWS_WITH_AS(dtype_named("half"), doctest::Contains("'half'"), Error);
}

TEST_CASE("the 16-bit types have no arithmetic: f16 + f16 is float") {
  static_assert(std::is_same_v<decltype(f16{} + f16{}), float>);
  static_assert(!std::is_convertible_v<float, f16> && !std::is_convertible_v<double, bf16>);
  static_assert(std::is_convertible_v<f16, float> &&
                std::is_trivially_default_constructible_v<bf16>);
}

namespace {

/// Every pattern of H: in tensors, dense and in steps, the same bits as number by number.
template <class H>
void check_tensors() {
  using Bits = decltype(H::u);
  constexpr DType d = dtype_of<H>();
  const Index n = Index(1) << (8 * sizeof(H));
  const Tensor x = empty({n}, d);
  for (Index i = 0; i < n; ++i) x.span<H>()[size_t(i)] = H::from_bits(Bits(i));
  for (Index step : {1, 3}) {
    const Tensor from = x.slice(0, 0, n, step);
    const Tensor narrow = from.to(DType::f32), wide = from.to(DType::f64);
    const Tensor from_narrow = narrow.to(d), from_wide = wide.to(d);
    // Back into every third place of a tensor.
    const Tensor spread = zeros({3 * from.numel()}, d).slice(0, 0, 3 * from.numel(), 3);
    copy_elements(narrow, spread);
    const Tensor from_steps = spread.contiguous();
    int wrong = 0;
    for (Index i = 0; i < from.numel(); ++i) {
      const size_t at = size_t(i);
      const H h = x.span<H>()[size_t(i * step)];
      wrong += bits<uint32_t>(narrow.span<float>()[at]) != bits<uint32_t>(float(h));
      wrong += bits<uint64_t>(wide.span<double>()[at]) != bits<uint64_t>(double(float(h)));
      wrong += from_narrow.span<H>()[at].u != H(float(h)).u;
      wrong += from_steps.span<H>()[at].u != H(float(h)).u;
      wrong += from_wide.span<H>()[at].u != H(double(float(h))).u;
    }
    CHECK(wrong == 0);
  }
}

/// Doubles on, and a hair beside, the middles between neighbours, and random ones: in tensors, too,
/// they are rounded once.
template <class H>
void check_doubles_in_tensors() {
  std::vector<double> values;
  for (uint32_t p = 0; p < 0x7fff; p += 3) {
    const double a = decode(uint16_t(p), kExponentBits<H>),
                 b = decode(uint16_t(p + 1), kExponentBits<H>);
    if (!std::isfinite(b)) continue;
    const double middle = a + (b - a) / 2;
    for (double v : {middle, std::nextafter(middle, 0), std::nextafter(middle, kInf),
                     middle * (1 + 0x1p-40), middle * (1 - 0x1p-40)})
      values.push_back(p % 2 ? v : -v);
  }
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto [a, b, c, d] = Philox::block(8, 0, i);
    values.push_back(std::ldexp(2 * uniform01(join(a, b)) - 1, int(c % 60) - 30));
  }
  const std::vector<double> got =
      tensor(values, {Index(values.size())}, DType::f64).to(dtype_of<H>()).to_vector();
  std::vector<H> apart(2 * values.size());
  store_run(apart.data(), dtype_of<H>(), 2, Index(values.size()), values.data());
  int wrong = 0, wrong_apart = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    wrong += got[i] != reference<H>(values[i]);
    wrong_apart += double(apart[2 * i]) != reference<H>(values[i]);
  }
  CHECK(wrong == 0);
  CHECK(wrong_apart == 0);
}

template <class H>
bool stays_nan(float f) {
  const double wide = bits<double>(uint64_t{0x7ff0000000000000} |
                                   (uint64_t{bits<uint32_t>(f)} & 0x7fffff));  // the lowest bits
  return std::isnan(float(H(f))) && std::isnan(float(H(double(f)))) && std::isnan(wide) &&
         std::isnan(float(H(wide)));
}

}  // namespace

TEST_CASE("tensors convert all patterns of the small formats as single numbers are converted" *
          doctest::test_suite("host")) {
  check_tensors<f16>();
  check_tensors<bf16>();
  check_tensors<f8e4m3>();
  check_tensors<f8e5m2>();
}

TEST_CASE("tensors round doubles to 16 bits once") {
  check_doubles_in_tensors<f16>();
  check_doubles_in_tensors<bf16>();
}

TEST_CASE("no payload of a NaN of f32 or f64 becomes a number in 16 or 8 bits") {
  int wrong = 0;
  for (uint32_t sign : {0u, 0x80000000u})
    for (uint32_t payload = 1; payload < 0x800000; payload += payload < 70000 ? 1 : 61) {
      const float nan = bits<float>(sign | 0x7f800000u | payload);
      wrong += !stays_nan<f16>(nan) || !stays_nan<bf16>(nan) || !stays_nan<f8e4m3>(nan) ||
               !stays_nan<f8e5m2>(nan);
    }
  CHECK(wrong == 0);
}

TEST_CASE("D7: NaN stays NaN, and isnan sees it in this build") {
  volatile double nan = kNaN;
  volatile float low_bit =
      bits<float>(uint32_t(0x7f800001u));  // a NaN whose payload does not fit 16 bits
  CHECK(std::isnan(nan));
  CHECK(nan != nan);
  CHECK(std::isinf(float(f16(1e6))));
  CHECK(std::isnan(float(f16(double(nan)))));
  CHECK(std::isnan(float(bf16(double(nan)))));
  CHECK(std::isnan(float(f16(float(low_bit)))));
  CHECK(std::isnan(float(bf16(float(low_bit)))));
  for (DType d : kFloatDTypes) CHECK(std::isnan(tensor({nan}, d).item()));
#if !defined(__FINITE_MATH_ONLY__) || __FINITE_MATH_ONLY__ || defined(__FAST_MATH__)
#error "compiled with -ffast-math or -ffinite-math-only, which folds isnan away"
#endif
}

TEST_CASE("casts: truncation to integers, wrapping, and bool is != 0") {
  CHECK(tensor({-1.9, 1.9}, DType::f32).to(DType::i32).to_vector() == std::vector<double>{-1, 1});
  CHECK(tensor({300}, DType::i64).to(DType::u8).item() == 44);
  CHECK(tensor({0.25, 0, -3}, DType::f16).to(DType::boolean).to_vector() ==
        std::vector<double>{1, 0, 1});
  CHECK(tensor({2049}, DType::i64).to(DType::f16).item() == 2048);
}

TEST_CASE("promote_types is the published table") {
  using enum DType;
  const DType types[] = {boolean, u8, i32, i64, f16, bf16, f32, f64};
  const DType table[8][8] = {
      {boolean, u8, i32, i64, f16, bf16, f32, f64}, {u8, u8, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i64, f16, bf16, f32, f64},    {i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f32, f32, f64},     {bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f64},     {f64, f64, f64, f64, f64, f64, f64, f64}};
  for (size_t a = 0; a < 8; ++a)
    for (size_t b = 0; b < 8; ++b) CHECK(promote_types(types[a], types[b]) == table[a][b]);
}

TEST_CASE("promote_types is commutative, associative and idempotent") {
  int wrong = 0;
  for (size_t i = 0; i < kDTypes; ++i)
    for (size_t j = 0; j < kDTypes; ++j)
      for (size_t k = 0; k < kDTypes; ++k) {
        const DType a = DType(i), b = DType(j), c = DType(k);
        wrong += promote_types(a, a) != a || promote_types(a, b) != promote_types(b, a);
        wrong += promote_types(promote_types(a, b), c) != promote_types(a, promote_types(b, c));
      }
  CHECK(wrong == 0);
}

namespace {

constexpr Typed D(DType d) { return {d, Rank::dimensioned}; }
constexpr Typed Z(DType d) { return {d, Rank::zero_dim}; }
constexpr Typed W(DType d) { return {d, Rank::scalar}; }

DType result(std::initializer_list<Typed> operands) {
  const DType forward = result_type(std::span(operands.begin(), operands.size()));
  const std::vector<Typed> reversed(std::rbegin(operands), std::rend(operands));
  CHECK(result_type(reversed) == forward);
  return forward;
}

}  // namespace

TEST_CASE("result_type: dimensioned tensors, 0-dim tensors and numbers speak with falling weight") {
  using enum DType;
  for (DType d : {f16, bf16, f32, f64})
    for (size_t z = 0; z < kDTypes; ++z) {
      CHECK(result({D(d), Z(DType(z))}) == d);
      CHECK(result({D(d), W(DType(z))}) == d);
      if (info(DType(z)).category != Category::floating) CHECK(result({Z(d), W(DType(z))}) == d);
    }
  CHECK(result({D(bf16), Z(f64)}) == bf16);
  CHECK(result({D(f16), Z(f32)}) == f16);
  CHECK(result({D(u8), Z(i64)}) == u8);
  CHECK(result({D(i64), Z(f16)}) == f16);
  CHECK(result({D(u8), Z(f64)}) == f64);
  CHECK(result({Z(f16), Z(f32)}) == f32);
  for (size_t z = 0; z < kDTypes; ++z) CHECK(result({D(boolean), Z(DType(z))}) == DType(z));
  for (Typed t : {D(u8), Z(u8), D(i32), D(i64)}) {
    CHECK(result({t, W(boolean)}) == t.dtype);
    CHECK(result({t, W(i64)}) == t.dtype);
    CHECK(result({t, W(f64)}) == f32);
  }
  CHECK(result({D(boolean), W(boolean)}) == boolean);
  CHECK(result({D(boolean), W(i64)}) == i64);
  CHECK(result({D(boolean), W(f64)}) == f32);
  CHECK(result({W(boolean), W(boolean)}) == boolean);
  CHECK(result({W(boolean), W(i64)}) == i64);
  CHECK(result({W(i64), W(f64)}) == f32);
  CHECK(result({D(f16), D(bf16)}) == f32);
  CHECK(result({D(f16), Z(f64), W(f64)}) == f16);
}
