// core/random.h -- random numbers as a pure function of (seed, stream, offset): nothing is stored,
// so whoever knows the three gets the same numbers, in any order, on any thread and device. The
// generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011).
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "minim/core/half.h"  // MINIM_HD

namespace minim {

struct Philox {
  static constexpr uint64_t kBy0 = 0xD2511F53u, kBy1 = 0xCD9E8D57u;
  static constexpr uint32_t kStep0 = 0x9E3779B9u, kStep1 = 0xBB67AE85u;  // of the key

  /// 128 random bits. Key: seed (low word, high word). Counter: offset (low, high), stream (low,
  /// high).
  MINIM_HD static constexpr std::array<uint32_t, 4> block(uint64_t seed, uint64_t stream,
                                                          uint64_t offset) {
    uint32_t c0 = uint32_t(offset), c1 = uint32_t(offset >> 32);
    uint32_t c2 = uint32_t(stream), c3 = uint32_t(stream >> 32);
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = kBy0 * c0, b = kBy1 * c2;
      c0 = uint32_t(b >> 32) ^ c1 ^ k0;
      c1 = uint32_t(b);
      c2 = uint32_t(a >> 32) ^ c3 ^ k1;
      c3 = uint32_t(a);
      k0 += kStep0;
      k1 += kStep1;
    }
    return {c0, c1, c2, c3};
  }
  /// word[k][i] = block(seed, stream, first + i)[k], one vector of them after the other.
  template <int n>
  static void blocks(uint64_t seed, uint64_t stream, uint64_t first, uint32_t (&word)[4][n]) {
    for (int i = 0; i < n; ++i) {
      word[0][i] = uint32_t(first + uint64_t(i)),
      word[1][i] = uint32_t((first + uint64_t(i)) >> 32);
      word[2][i] = uint32_t(stream), word[3][i] = uint32_t(stream >> 32);
    }
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int r = 0; r < 10; ++r, k0 += kStep0, k1 += kStep1)
#pragma GCC unroll 1
      for (int i = 0; i < n; ++i) {
        const uint64_t a = kBy0 * word[0][i], b = kBy1 * word[2][i];
        word[0][i] = uint32_t(b >> 32) ^ word[1][i] ^ k0;
        word[1][i] = uint32_t(b);
        word[2][i] = uint32_t(a >> 32) ^ word[3][i] ^ k1;
        word[3][i] = uint32_t(a);
      }
  }
};

/// What random numbers are used for. Each use has streams of its own, so that no two ever see the
/// same numbers.
enum class RandomUse : uint8_t { init, data, dropout, rounding, sampling, toy, shuffle, seeds };

/// @param number below 2^56: a step, a parameter's index ...
MINIM_HD constexpr uint64_t random_stream(RandomUse use, uint64_t number = 0) {
  return uint64_t(use) << 56 | number;
}

MINIM_HD constexpr uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

/// A seed for thread, process or data worker number `index` of a run with that seed: another one
/// for each, the same in every run. @param index below 2^56
constexpr uint64_t derived_seed(uint64_t seed, uint64_t index) {
  const auto [a, b, c, d] = Philox::block(seed, random_stream(RandomUse::seeds, index), 0);
  return join(a, b);
}

/// Uniform on the multiples of 2^-24 in [0, 1).
MINIM_HD constexpr float uniform01(uint32_t random) { return float(random >> 8) * 0x1p-24f; }

/// Uniform on the multiples of 2^-53 in [0, 1).
MINIM_HD constexpr double uniform01(uint64_t random) { return double(random >> 11) * 0x1p-53; }

/// Uniform on 0 .. n-1 without a modulo: the high word of random * n. The bias is below n / 2^64.
MINIM_HD constexpr uint64_t below(uint64_t n, uint64_t random) {
  const uint64_t low = (random & 0xffffffffu) * (n & 0xffffffffu);
  const uint64_t cross = (random >> 32) * (n & 0xffffffffu) + (low >> 32);
  const uint64_t other = (random & 0xffffffffu) * (n >> 32) + (cross & 0xffffffffu);
  return (random >> 32) * (n >> 32) + (cross >> 32) + (other >> 32);
}

/// Two independent standard normal numbers from one block (Box and Muller, 1958).
MINIM_HD inline std::array<double, 2> normal(const std::array<uint32_t, 4>& random) {
  const auto [a, b, c, d] = random;
  const double radius = sqrt(-2 * log(1 - uniform01(join(a, b))));  // 1 - u is never 0
  const double angle = 6.283185307179586 * uniform01(join(c, d));
  return {radius * cos(angle), radius * sin(angle)};
}

}  // namespace minim
