// core/math.h -- the scalar functions an op may call, for float and double, on host and device. On
// the host the float ones are straight-line code (no branch, no call, no fma), so that a plain loop
// over them is vectorised at any vector width and a vector's lane, a loop's tail and a single call
// all give the same bits. Each is within 2 ulp of the true value (sigmoid: 3). GCC vectorises them
// under -O3 -fno-math-errno -fno-trapping-math, flags that change no value. Range reduction follows
// Cody and Waite, "Software Manual for the Elementary Functions" (1980); the polynomials are
// minimax.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "minim/core/half.h"

namespace minim::math {

/// a if c, else b; both are evaluated.
template <class A>
MINIM_HD constexpr A select(bool c, A a, A b) {
  return c ? a : b;
}
MINIM_HD inline float fabs(float x) { return __builtin_fabsf(x); }
MINIM_HD inline double fabs(double x) { return __builtin_fabs(x); }
/// 1, -1, or x where it is 0 or NaN.
template <class A>
MINIM_HD inline A sign(A x) {
  return x > A(0) ? A(1) : x < A(0) ? A(-1) : x;
}
MINIM_HD inline float copysign(float x, float sign) {
  return bits<float>((bits<uint32_t>(x) & 0x7fffffffu) | (bits<uint32_t>(sign) & 0x80000000u));
}

namespace fp32 {
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kLn2High = 0.693359375f;  // 9 bits: its product with an exponent is exact
inline constexpr float kLn2Low = -2.12194440e-4f;

/// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule.
template <class... C>
MINIM_HD inline float polynomial(float x, float c0, C... rest) {
  if constexpr (sizeof...(rest) == 0)
    return c0;
  else
    return c0 + x * polynomial(x, rest...);
}

/// 2^n for -126 <= n <= 127.
MINIM_HD inline float power_of_two(int32_t n) { return bits<float>(uint32_t(n + 127) << 23); }

/// x = n ln 2 + r with |r| <= ln 2 / 2, and tail = e^r - 1 - r.
struct Reduced {
  int32_t n;
  float r, tail;
};
MINIM_HD inline Reduced reduce(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  float shifted = x * 1.44269504f + kRound;
  float n = shifted - kRound;
  float r = (x - n * kLn2High) - n * kLn2Low;
  float q = polynomial(r, 0.5000000079f, 0.1666666686f, 0.0416662679f, 0.0083332651f,
                       0.001394621598f, 0.0001991800696f);
  return {int32_t(bits<uint32_t>(shifted) - bits<uint32_t>(kRound)), r, r * r * q};
}

/// e^x for -87 <= x <= 88, and NaN.
MINIM_HD inline float exp_near(float x) {
  const Reduced e = reduce(x);
  return (1.0f + (e.r + e.tail)) * power_of_two(e.n);
}

/// e^x for x <= 0, and NaN; in two steps, as in exp.
MINIM_HD inline float exp_negative(float x) {
  const Reduced e = reduce(select(x < -104.0f, -104.0f, x));  // rounds to 0
  return (1.0f + (e.r + e.tail)) * power_of_two(e.n + 64) * 0x1p-64f;
}

MINIM_HD inline float exp(float x) {
  x = select(x > 89.0f, 89.0f, x);      // overflows
  x = select(x < -104.0f, -104.0f, x);  // rounds to 0
  Reduced e = reduce(x);
  int32_t half = e.n >> 1;  // two steps: 2^n itself may be out of range where the result is not
  return (1.0f + (e.r + e.tail)) * power_of_two(half) * power_of_two(e.n - half);
}

MINIM_HD inline float expm1(float x) {
  float y = select(x > 89.0f, 89.0f, x);
  y = select(y < -30.0f, -30.0f, y);  // rounds to -1
  Reduced e = reduce(y);
  int32_t half = e.n >> 1;
  float one = power_of_two(-select(e.n > 100, int32_t(100), e.n));
  float v = ((1.0f - one) + (e.r + e.tail)) * power_of_two(half) * power_of_two(e.n - half);
  return select(x == 0.0f, x, v);
}

/// log for positive finite x, plus `correction`.
MINIM_HD inline float log_positive(float x, float correction) {
  bool subnormal = x < 0x1p-126f;
  uint32_t u = bits<uint32_t>(select(subnormal, x * 0x1p23f, x));
  int32_t exponent = int32_t(u - 0x3f3504f3u) >> 23;  // m in [sqrt(1/2), sqrt(2))
  float f = bits<float>(u - (uint32_t(exponent) << 23)) - 1.0f;
  float n = float(exponent - select(subnormal, int32_t(23), int32_t(0)));
  float p =
      polynomial(f, 0.3333331262f, -0.2500000969f, 0.2000211753f, -0.1666798901f, 0.1421956944f,
                 -0.1240572307f, 0.1188817127f, -0.1167486109f, 0.06745673505f);
  float square = f * f;
  float small = (square * (f * p) + n * kLn2Low) + correction;
  return n * kLn2High + (f + (small - 0.5f * square));
}

/// What log is outside the positive finite numbers.
MINIM_HD inline float log_special(float x, float v) {
  v = select(x == kInf, kInf, v);
  v = select(x == 0.0f, -kInf, v);
  return select(!(x >= 0.0f), std::numeric_limits<float>::quiet_NaN(), v);
}

MINIM_HD inline float log(float x) { return log_special(x, log_positive(x, 0.0f)); }

MINIM_HD inline float log1p(float x) {
  float u = 1.0f + x;
  float lost =
      select(x > 1.0f, 1.0f - (u - x), x - (u - 1.0f));  // what rounding took from u; exact
  float v = log_special(u, log_positive(u, lost / u));
  return select(fabs(x) < 0x1p-25f, x, v);
}

MINIM_HD inline float tanh(float x) {
  float a = fabs(x), z = a * a;
  float p = polynomial(z, -0.3333328119f, 0.133314204f, -0.05373779942f, 0.02063255008f,
                       -0.005697387637f);
  float near = a + a * (z * p), b = a + a;
  float far = 1.0f - 2.0f / (1.0f + exp_near(select(b > 40.0f, 40.0f, b)));  // there it is 1
  return copysign(select(a < 0.625f, near, far), x);
}

MINIM_HD inline float erf(float x) {
  float a = fabs(x), z = a * a;
  float near = a + a * polynomial(z, 0.1283791657f, -0.3761262583f, 0.112835852f, -0.02685381418f,
                                  0.00518833197f, -0.0008010231765f, 7.853989454e-5f);
  float t = select(a > 4.0f, 4.0f, a);  // from there on the result rounds to 1
  float log_erfc = polynomial(t, -0.0003416394723f, -1.127088742f, -0.6381455361f, -0.1031061772f,
                              0.02183780271f, -0.002947596439f, 0.0001863732034f);
  return copysign(select(a < 1.0f, near, 1.0f - exp_near(log_erfc)), x);
}
}  // namespace fp32

#ifdef __CUDA_ARCH__
#define MINIM_FP32(name) ::name##f
MINIM_HD inline float exp_negative(float x) { return ::expf(x); }
#else
#define MINIM_FP32(name) fp32::name
using fp32::exp_negative;
#endif

MINIM_HD inline float exp(float x) { return MINIM_FP32(exp)(x); }
MINIM_HD inline float expm1(float x) { return MINIM_FP32(expm1)(x); }
MINIM_HD inline float log(float x) { return MINIM_FP32(log)(x); }
MINIM_HD inline float log1p(float x) { return MINIM_FP32(log1p)(x); }
MINIM_HD inline float tanh(float x) { return MINIM_FP32(tanh)(x); }
MINIM_HD inline float erf(float x) { return MINIM_FP32(erf)(x); }
#undef MINIM_FP32

MINIM_HD inline double exp(double x) { return ::exp(x); }
MINIM_HD inline double exp_negative(double x) { return ::exp(x); }
MINIM_HD inline double expm1(double x) { return ::expm1(x); }
MINIM_HD inline double log(double x) { return ::log(x); }
MINIM_HD inline double log1p(double x) { return ::log1p(x); }
MINIM_HD inline double tanh(double x) { return ::tanh(x); }
MINIM_HD inline double erf(double x) { return ::erf(x); }

MINIM_HD inline float sqrt(float x) { return ::sqrtf(x); }
MINIM_HD inline double sqrt(double x) { return ::sqrt(x); }
template <class A>
MINIM_HD inline A rsqrt(A x) {
  return A(1) / sqrt(x);
}

/// These float ones go through double: right in every special case and for every argument, and not
/// vectorised.
MINIM_HD inline double pow(double x, double y) { return ::pow(x, y); }
MINIM_HD inline float pow(float x, float y) { return float(::pow(double(x), double(y))); }
MINIM_HD inline double sin(double x) { return ::sin(x); }
MINIM_HD inline float sin(float x) { return float(::sin(double(x))); }
MINIM_HD inline double cos(double x) { return ::cos(x); }
MINIM_HD inline float cos(float x) { return float(::cos(double(x))); }

/// 1 / (1 + e^-x), without overflow and with full precision where it is tiny.
template <class A>
MINIM_HD inline A sigmoid(A x) {
  A e = exp_negative(-fabs(x));
  return select(x >= A(0), A(1), e) / (A(1) + e);
}

}  // namespace minim::math
