// core/wide.h -- for the few rows at whose values an op leaves the range of its compute type A on
// the way though the result fits (a variance of 1e20s, say): the same formula is then run once more
// in Wider<A>, which no product, power or sum of A's leaves. That is double for float, and for
// double a number with an exponent of its own.
#pragma once
#include "minim/core/math.h"

namespace minim {

/// m * 2^e with m in [0.5, 1), or m of 0, inf or NaN: a double without bounds.
class Extended {
 public:
  Extended() = default;
  MINIM_HD Extended(double x) : Extended(x, 0) {}
  MINIM_HD Extended(double x, int64_t e) {
    int own = 0;
    m_ = x - x == 0 ? ::frexp(x, &own) : x;
    if (m_ != 0 && x - x == 0) e_ = e + own;
  }
  MINIM_HD explicit operator double() const {
    constexpr int64_t kFar = 1 << 12;  // beyond every double
    return ::ldexp(m_, int(e_ < -kFar ? -kFar : e_ > kFar ? kFar : e_));
  }
  MINIM_HD Extended operator-() const { return {-m_, e_}; }
  MINIM_HD friend Extended operator+(Extended a, Extended b) {
    if (a.m_ == 0) return b;
    if (b.m_ == 0) return a;
    const int64_t e = a.e_ > b.e_ ? a.e_ : b.e_;
    return {double(Extended(a.m_, a.e_ - e)) + double(Extended(b.m_, b.e_ - e)), e};
  }
  MINIM_HD friend Extended operator-(Extended a, Extended b) { return a + -b; }
  MINIM_HD friend Extended operator*(Extended a, Extended b) { return {a.m_ * b.m_, a.e_ + b.e_}; }
  MINIM_HD friend Extended operator/(Extended a, Extended b) { return {a.m_ / b.m_, a.e_ - b.e_}; }
  MINIM_HD Extended& operator+=(Extended b) { return *this = *this + b; }
  MINIM_HD Extended& operator*=(Extended b) { return *this = *this * b; }
  MINIM_HD Extended& operator/=(Extended b) { return *this = *this / b; }
  MINIM_HD friend bool operator==(Extended a, Extended b) { return a.m_ == b.m_ && a.e_ == b.e_; }
  MINIM_HD friend bool operator!=(Extended a, Extended b) { return !(a == b); }
  MINIM_HD friend bool operator<(Extended a, Extended b) { return (a - b).m_ < 0; }
  MINIM_HD friend bool operator>(Extended a, Extended b) { return b < a; }

  MINIM_HD Extended root() const {
    const int64_t odd = e_ & 1;
    return {::sqrt(odd ? 2 * m_ : m_), (e_ - odd) / 2};
  }
  /// For numbers of 0 or more.
  MINIM_HD Extended power(double p) const {
    if (m_ == 0 || m_ - m_ != 0) return ::pow(m_, p);
    const double t = p * double(e_), whole = ::floor(t);
    return Extended(::pow(m_, p), int64_t(whole)) * Extended(::exp2(t - whole));
  }
  MINIM_HD double fraction() const { return m_; }
  MINIM_HD int64_t exponent() const { return e_; }

 private:
  double m_ = 0;
  int64_t e_ = 0;
};

namespace math {
MINIM_HD inline Extended fabs(Extended x) { return x < Extended(0) ? -x : x; }
MINIM_HD inline Extended sqrt(Extended x) { return x.root(); }
MINIM_HD inline Extended rsqrt(Extended x) { return Extended(1) / x.root(); }
MINIM_HD inline Extended pow(Extended x, double p) { return x.power(p); }
}  // namespace math

namespace detail {
template <class A>
struct WideOf {
  using type = A;  // integers
};
template <>
struct WideOf<float> {
  using type = double;
};
template <>
struct WideOf<double> {
  using type = Extended;
};
}  // namespace detail
template <class A>
using Wider = typename detail::WideOf<A>::type;

template <class A>
inline constexpr A kSafe = A(sizeof(A) == 4 ? 0x1p100 : 0x1p960);
/// Whether a positive intermediate of type W lies so far inside A's range that what it was summed
/// from has left it at no place that matters, and what is made from it does not leave it. NaN does
/// not; what is no A does.
template <class A, class W>
MINIM_HD constexpr bool suffices(W v) {
  if constexpr (std::is_same_v<W, A>) return v >= A(1) / kSafe<A> && v <= kSafe<A>;
  return true;
}
template <class A>
MINIM_HD constexpr bool is_finite(A v) {
  return v - v == A(0);
}

}  // namespace minim
