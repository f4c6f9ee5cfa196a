// core/float8.h -- the two 8-bit floats of the OCP "8-bit Floating Point Specification" (2023), for
// storage: f8e4m3 (no infinities; 448 is the largest) and f8e5m2 (as IEEE 754, cut to 8 bits).
// Conversions round to nearest, ties to even, once. What is too large becomes NaN in f8e4m3 and inf
// in f8e5m2, so that it is seen (PyTorch 2.15 makes 448 of it in f8e4m3, of inf too; earlier ones
// NaN); to saturate, clamp to the largest value first, as minim::to_saturated does.
#pragma once
#include "minim/core/half.h"

namespace minim {

/// One sign bit, E exponent bits, M fraction bits.
template <int E, int M, bool Infinities>
struct Float8 {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  /// The pattern behind the largest finite value.
  static constexpr uint32_t kOver = Infinities ? ((1u << E) - 1) << M : 0x7f;
  static constexpr uint32_t kNaN = 0x7f;

  uint8_t u;
  Float8() = default;
  MINIM_HD constexpr explicit Float8(float f) : u(from_float(f)) {}
  MINIM_HD constexpr explicit Float8(double d) : u(from_float(round_to_odd(d))) {}
  MINIM_HD static constexpr Float8 from_bits(uint8_t u) {
    Float8 x{};
    x.u = u;
    return x;
  }
  MINIM_HD constexpr operator float() const {
    const uint32_t sign = uint32_t(u & 0x80u) << 24, x = u & 0x7fu;
    if (Infinities ? x > kOver : x == kOver) return bits<float>(sign | 0x7fc00000u);
    if (x == kOver) return bits<float>(sign | 0x7f800000u);
    if (x >> M == 0)  // subnormal: a multiple of the smallest value
      return bits<float>(sign | bits<uint32_t>(float(x) * bits<float>(kSmallest)));
    return bits<float>(sign | ((x << (23 - M)) + ((127u - kBias) << 23)));
  }

 private:
  static constexpr uint32_t kSmallest = uint32_t(128 - kBias - M) << 23;  ///< 2^(1 - bias - M)

  MINIM_HD static constexpr uint8_t from_float(float f) {
    const uint32_t sign = (bits<uint32_t>(f) >> 24) & 0x80u;
    uint32_t x = bits<uint32_t>(f) & 0x7fffffffu;
    if (x > 0x7f800000u) return uint8_t(sign | kNaN);
    if (x < uint32_t(128 - kBias) << 23) {  // subnormal: float's own rounding does it
      constexpr uint32_t magic = kSmallest + (23u << 23);
      return uint8_t(sign | (bits<uint32_t>(bits<float>(x) + bits<float>(magic)) - magic));
    }
    x = (x + (1u << (22 - M)) - 1 + ((x >> (23 - M)) & 1u) - ((127u - kBias) << 23)) >> (23 - M);
    return uint8_t(sign | (x > kOver ? kOver : x));
  }
};

using f8e4m3 = Float8<4, 3, false>;
using f8e5m2 = Float8<5, 2, true>;

}  // namespace minim
