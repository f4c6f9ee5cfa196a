// core/half.h -- f16 (IEEE 754 binary16) and bf16 as storage types. They have no arithmetic: they
// widen to float by themselves and come back only by an explicit, correctly rounded conversion, so
// no op can compute in 16 bits by accident (`f16 z = x + y` does not compile). Rounding is to
// nearest, ties to even, once, from float and from double alike.
#pragma once
#include <cstdint>

#ifndef MINIM_HD
#ifdef __CUDACC__
#define MINIM_HD __host__ __device__
#else
#define MINIM_HD
#endif
#endif
/// Before a loop whose turns do not read what others write: the compiler may take several at once.
#ifdef __clang__
#define MINIM_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define MINIM_IVDEP _Pragma("GCC ivdep")
#endif

namespace minim {

template <class To, class From>
MINIM_HD constexpr To bits(From from) {
  return __builtin_bit_cast(To, from);
}

/// double -> float, rounded to odd: any later rounding to 16 bits is then the same as rounding the
/// double once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
MINIM_HD constexpr float round_to_odd(double d) {
  float f = float(d);
  if (double(f) == d || d != d) return f;
  uint32_t u = bits<uint32_t>(f);
  bool away_from_zero = d < 0 ? double(f) < d : double(f) > d;
  return bits<float>((away_from_zero ? u - 1 : u) | 1u);
}

struct f16 {
  uint16_t u;
  f16() = default;
  MINIM_HD constexpr explicit f16(float f) : u(from_float(f)) {}
  MINIM_HD constexpr explicit f16(double d) : u(from_float(round_to_odd(d))) {}
  MINIM_HD static constexpr f16 from_bits(uint16_t u) {
    f16 h{};
    h.u = u;
    return h;
  }
  MINIM_HD constexpr operator float() const {
    uint32_t sign = uint32_t(u & 0x8000u) << 16, x = uint32_t(u & 0x7fffu) << 13;
    uint32_t exponent = x & 0x0f800000u;
    x += 112u << 23;  // from bias 15 to bias 127
    if (exponent == 0x0f800000u)
      x += 112u << 23;  // inf and NaN
    else if (exponent == 0)
      x = bits<uint32_t>(bits<float>(x + (1u << 23)) - bits<float>(uint32_t(113u << 23)));
    return bits<float>(x | sign);
  }

 private:
  MINIM_HD static constexpr uint16_t from_float(float f) {
    uint32_t x = bits<uint32_t>(f), sign = (x >> 16) & 0x8000u;
    x &= 0x7fffffffu;
    if (x > 0x7f800000u) return uint16_t(sign | 0x7e00u | ((x >> 13) & 0x3ffu));  // NaN stays NaN
    if (x >= 0x47800000u) return uint16_t(sign | 0x7c00u);  // from 2^16 on: inf
    // Below 2^-14 an f16 is subnormal, a multiple of 2^-24. That is the last bit of a float in
    // [0.5, 1), so adding 0.5 (0x3f000000) rounds there and leaves the multiple in the low bits.
    if (x < 0x38800000u)
      return uint16_t(sign | (bits<uint32_t>(bits<float>(x) + 0.5f) - 0x3f000000u));
    // 0xc8000000 is -112 << 23, from bias 127 to bias 15. 13 bits go: adding just below half of the
    // last kept one, and 1 more where that is odd, carries upwards, ties to even.
    return uint16_t(sign | ((x + 0xc8000fffu + ((x >> 13) & 1u)) >> 13));
  }
};

struct bf16 {
  uint16_t u;
  bf16() = default;
  MINIM_HD constexpr explicit bf16(float f) : u(from_float(f)) {}
  MINIM_HD constexpr explicit bf16(double d) : u(from_float(round_to_odd(d))) {}
  MINIM_HD static constexpr bf16 from_bits(uint16_t u) {
    bf16 h{};
    h.u = u;
    return h;
  }
  MINIM_HD constexpr operator float() const { return bits<float>(uint32_t(u) << 16); }

 private:
  MINIM_HD static constexpr uint16_t from_float(float f) {
    uint32_t x = bits<uint32_t>(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return uint16_t((x >> 16) | 0x40u);
    // bf16 is the upper half of a float; adding to the lower one rounds as in f16 above.
    return uint16_t((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
  }
};

}  // namespace minim
