#include "minim/models/shuffle.h"

#include <algorithm>
#include <bit>

#include "minim/core/random.h"

namespace minim::models {

uint64_t shuffled(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t n) {
  constexpr uint64_t kRounds = 8;  // 4 would do for large n; few bits mix slower
  const int half = std::max(1, int(std::bit_width(n - 1) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t stream = random_stream(RandomUse::shuffle, epoch);
  uint64_t x = position;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t f = Philox::block(seed, stream, round << 32 | right)[0] & mask;
      const uint64_t old = left;
      left = right;
      right = old ^ f;
    }
    x = left << half | right;
  } while (x >= n);
  return x;
}

}  // namespace minim::models
