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
template <class A, class... C>
MINIM_HD inline A polynomial(A x, A c0, C... rest) {
  if constexpr (sizeof...(rest) == 0)
    return c0;
  else
    return c0 + x * polynomial(x, A(rest)...);
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

/// e^x 2^64 for -126 <= x <= 0, and NaN.
MINIM_HD inline float exp_lifted(float x) {
  const Reduced e = reduce(x);
  return (1.0f + (e.r + e.tail)) * power_of_two(e.n + 64);
}

/// e^x for x <= 0, and NaN; in two steps, as in exp.
MINIM_HD inline float exp_negative(float x) {
  return exp_lifted(select(x < -104.0f, -104.0f, x)) * 0x1p-64f;  // rounds to 0 there
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

/// (1 - Phi(a)) e^(a^2 / 2) for 0 <= a <= 15, and NaN: what is left of the normal distribution's
/// tail, a smooth function from 1/2 down. Within 4 (1 + a^2 / 2) 2^-24: e^(-a^2 / 2) has that error
/// too.
MINIM_HD inline float mills_ratio(float a) {
  const float t = 1.0f / (1.0f + 0.375f * a);
  const float p =
      polynomial(1.0f - 2.0f * t, 0.2744316556f, -0.1089680369f, 0.02075562719f, 0.00358852285f,
                 -0.002203220542f, -0.0004214653868f, 0.0002447910652f, 8.720563385e-05f);
  return 0.5f - a * (t * p);
}
// sin, cos and pow are computed in f64, and rounded once at the end.
inline constexpr double kRound64 = 0x1.8p52;  // adding it leaves an integer in the low bits

/// x 2/pi = 4 k + n + r with |r| <= 1/2, for any x: of the bits of 2/pi, here in pieces of 28 so
/// that products are exact, those that only make multiples of 4 are left out (Payne and Hanek,
/// "Radian reduction for trigonometric functions", 1983).
struct Turns {
  uint32_t n;
  double r;
};
MINIM_HD inline Turns quarter_turns(float x) {
  constexpr double c[] = {0x1.45f306cp-1,   0x1.c9c882ap-29, 0x1.4fe13a8p-59, 0x1.f47d4dp-86,
                          0x1.bb81b6cp-113, 0x1.4acc9ep-143, 0x1.0e4107cp-170};
  const double v = x, a = fabs(v);
  double piece[4];
  for (int k = 0; k < 4; ++k)
    piece[k] = select(a < 0x1p53, c[k],
                      select(a < 0x1p81, c[k + 1], select(a < 0x1p109, c[k + 2], c[k + 3])));
  const double whole = v * piece[0], next = v * piece[1];
  const double rest = whole - 4 * ((whole * 0.25 + kRound64) - kRound64);
  const double shifted = (rest + next) + kRound64, n = shifted - kRound64;
  return {uint32_t(bits<uint64_t>(shifted)), ((rest - n) + next) + (v * piece[2] + v * piece[3])};
}
/// The sine of t quarter turns from its start.
MINIM_HD inline float sin_of(Turns t) {
  const double z = t.r * t.r;
  const double sine = t.r * polynomial(z, 1.570796326788, -0.6459640961446, 0.07969258267355,
                                       -0.004681265868, 0.0001582054153419);
  const double cosine = polynomial(z, 0.9999999999524, -1.233700540618, 0.2536692032912,
                                   -0.02086006678438, 0.000903621860926);
  const float v = float(select((t.n & 1) != 0, cosine, sine));
  return bits<float>(bits<uint32_t>(v) ^ (t.n & 2) << 30);
}
MINIM_HD inline float sin(float x) { return sin_of(quarter_turns(x)); }
MINIM_HD inline float cos(float x) {
  const Turns t = quarter_turns(x);
  return sin_of({t.n + 1, t.r});
}

/// log2 of a finite or infinite a >= 0, and NaN.
MINIM_HD inline double log2_positive(double a) {
  constexpr uint64_t kHalf = 0x3fe6a09e667f3bcd, kBias = uint64_t{1023} << 52;  // sqrt(1/2)
  const uint64_t u = bits<uint64_t>(a), exponent = (u - kHalf + kBias) >> 52;   // of m, biased
  const double m = bits<double>(u - (exponent << 52) + kBias), f = (m - 1) / (m + 1);
  const double n = bits<double>(exponent | uint64_t{0x433} << 52) - (0x1p52 + 1023);
  const double v = n + f * polynomial(f * f, 2.88539008179, 0.9617966733682, 0.577083583007,
                                      0.4116726873438, 0.3407329932425);
  constexpr double kInf64 = std::numeric_limits<double>::infinity();
  return select(a == 0, -kInf64, select(a < kInf64, v, a));
}
/// 2^t; beyond `most` and -most as there: at 200 a float is infinite or 0.
MINIM_HD inline double exp2_clamped(double t, double most = 200) {
  const double low = select(t < -most, -most, t), in = select(low > most, most, low);
  const double shifted = in + kRound64;
  const double p = polynomial(in - (shifted - kRound64), 0.9999999999595, 0.6931471805568,
                              0.2402265121412, 0.05550410906374, 0.0096180255304, 0.001333347840987,
                              0.0001546975574493, 1.530372113080e-05);
  return select(t == t, bits<double>(bits<uint64_t>(p) + (bits<uint64_t>(shifted) << 52)), t);
}
/// With the special cases of IEEE 754.
MINIM_HD inline float pow(float x, float y) {
  // An even integer from 2^30 on. Fractions are compared as floats, as all is: GCC mixes no widths.
  const double e = select(fabs(y) > 0x1p30f, 0x1p30, double(y)), half = 0.5 * e;
  const float fraction = float(e - ((e + kRound64) - kRound64));
  const float of_half = float(half - ((half + kRound64) - kRound64));
  const float a = select((x < 0) & (x > -kInf) & !(fraction == 0),
                         std::numeric_limits<float>::quiet_NaN(), fabs(x));
  float v = float(exp2_clamped(double(y) * log2_positive(double(a))));
  const uint32_t odd = select((fraction == 0) & (of_half != 0), 0x80000000u, 0u);
  v = bits<float>(bits<uint32_t>(v) ^ (odd & bits<uint32_t>(x)));
  v = select((x == -1) & (fabs(y) == kInf), 1.0f, v);
  return select((x == 1) | (y == 0), 1.0f, v);
}
/// s y x^(y - 1), where the power alone need not fit.
MINIM_HD inline float pow_slope(float s, float x, float y) {
  const float p = pow(x, y - 1.0f), a = fabs(x);
  const double power = exp2_clamped((double(y) - 1) * log2_positive(double(a)), 1000);
  const float v = float(double(s) * double(y) * power);
  const float signed_v = bits<float>(bits<uint32_t>(v) ^ (bits<uint32_t>(p) & 0x80000000u));
  return select((a > 0) & (a < kInf) & (fabs(y) < kInf) & (p == p), signed_v, s * y * p);
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

// Far out a tail e^-a f(a) is as small as numbers get, and e^-a alone is smaller: its last digits
// would be lost before they are multiplied. So the factor is kept 2^64 times as large, and kLower
// puts the product in its place.
inline constexpr float kLower = 0x1p-64f;
/// e^x 2^64 for -126 <= x <= 0 (f64: -800), and NaN.
MINIM_HD inline float exp_lifted(float x) { return fp32::exp_lifted(x); }
MINIM_HD inline double exp_lifted(double x) {
  const double root = ::exp(0.5 * x);
  return root * 0x1p64 * root;
}
/// (1 - Phi(a)) e^(a^2 / 2) for 0 <= a <= 15 (f64: 40), and NaN; Phi is the normal distribution's.
MINIM_HD inline float mills_ratio(float a) { return fp32::mills_ratio(a); }
MINIM_HD inline double mills_ratio(double a) {
  if (a < 26) return 0.5 * ::erfc(a * 0.70710678118654752440) / ::exp(-0.5 * a * a);
  const double s = -1 / (a * a);  // the asymptotic series
  return 0.39894228040143267794 / a *
         fp32::polynomial(s, 1.0, 1, 3, 15, 105, 945, 10395, 135135, 2027025);
}

MINIM_HD inline float sqrt(float x) { return ::sqrtf(x); }
MINIM_HD inline double sqrt(double x) { return ::sqrt(x); }
template <class A>
MINIM_HD inline A rsqrt(A x) {
  return A(1) / sqrt(x);
}

MINIM_HD inline double pow(double x, double y) { return ::pow(x, y); }
MINIM_HD inline float pow(float x, float y) { return fp32::pow(x, y); }
/// s y x^(y - 1), where the power alone need not fit.
MINIM_HD inline float pow_slope(float s, float x, float y) { return fp32::pow_slope(s, x, y); }
MINIM_HD inline double pow_slope(double s, double x, double y) {
  const double a = fabs(x);
  if (fabs(y) < 0.5) return s * y * ::pow(x, y) / x;  // y - 1 would round
  const double p = ::pow(x, y - 1), root = ::pow(a, 0.5 * (y - 1));
  constexpr double least = std::numeric_limits<double>::min(), most = 1 / least;
  if (!(a > 0 && a < most * 4) || p != p || (fabs(p) > least && fabs(p) < most)) return s * y * p;
  return ::copysign(s * y * root * root, s * y * ::copysign(1.0, p));
}
MINIM_HD inline double sin(double x) { return ::sin(x); }
MINIM_HD inline float sin(float x) { return fp32::sin(x); }
MINIM_HD inline double cos(double x) { return ::cos(x); }
MINIM_HD inline float cos(float x) { return fp32::cos(x); }

/// 1 / (1 + e^-x), without overflow and with full precision where it is tiny.
template <class A>
MINIM_HD inline A sigmoid(A x) {
  A e = exp_negative(-fabs(x));
  return select(x >= A(0), A(1), e) / (A(1) + e);
}

}  // namespace minim::math
