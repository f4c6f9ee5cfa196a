#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "minim/core/loops.h"
#include "minim/models/init.h"
#include "minim/ops/call.h"

using namespace minim;

namespace {
using Block = std::array<uint32_t, 4>;
}

static_assert(Philox::block(0, 0, 0)[0] == 0x6627e8d5u, "usable in constant expressions");

TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  CHECK(Philox::block(0, 0, 0) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint64_t ones = ~uint64_t{0};
  CHECK(Philox::block(ones, ones, ones) == Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox::block(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("runs of uniform draws are those of their blocks one by one") {
  const RngKey key{0x1234567890abcdef, random_stream(RandomUse::dropout, 3)};
  const Index far = Index(1) << 34;  // where the counter's low word overflows
  for (Index first : {Index{0}, Index{3}, Index{64}, far - 70})
    for (Index n : {1, 63, 128, 500}) {
      std::vector<float> run(static_cast<size_t>(n));
      cpu::uniform_run(key, first, n, run.data());
      bool same = true;
      for (Index i = 0; i < n; ++i) {
        const Block four = Philox::block(key.seed, key.stream, uint64_t(first + i) / 4);
        same &= run[size_t(i)] == uniform01(four[size_t((first + i) % 4)]);
      }
      CHECK(same);
    }
}

TEST_CASE("streams of different uses differ, and so do their numbers") {
  CHECK(random_stream(RandomUse::init, 5) != random_stream(RandomUse::data, 5));
  CHECK(random_stream(RandomUse::data, 5) != random_stream(RandomUse::data, 6));
  CHECK(Philox::block(1, random_stream(RandomUse::init), 0) !=
        Philox::block(1, random_stream(RandomUse::data), 0));
}

TEST_CASE("uniform numbers lie from 0 to below 1, ends exactly") {
  CHECK(uniform01(0u) == 0.0f);
  CHECK(uniform01(0xffffffffu) == 1.0f - 0x1p-24f);
  CHECK(uniform01(uint64_t{0}) == 0.0);
  CHECK(uniform01(~uint64_t{0}) == 1.0 - 0x1p-53);
}

TEST_CASE("below is the high word of the 128-bit product") {
  for (uint64_t i = 0; i < 1000; ++i) {
    const Block r = Philox::block(3, 0, i);
    const uint64_t random = join(r[0], r[1]), n = join(r[2], i % 2 ? r[3] : 0);
    __extension__ using Wide = unsigned __int128;
    CHECK(below(n, random) == uint64_t(Wide(random) * n >> 64));
  }
  CHECK(below(1, ~uint64_t{0}) == 0);
  CHECK(below(7, ~uint64_t{0}) == 6);
}

TEST_CASE("below hits every value equally often") {
  std::vector<int> count(7);
  for (uint64_t i = 0; i < 70000; ++i) {
    const Block r = Philox::block(11, 1, i);
    ++count[below(7, join(r[0], r[1]))];
  }
  for (int c : count) CHECK(std::abs(c - 10000) < 500);  // 5 standard deviations
}

TEST_CASE("normal numbers have mean 0, variance 1, kurtosis 3 and are uncorrelated in their pair") {
  const int n = 100000;
  double sum = 0, square = 0, fourth = 0, cross = 0;
  for (int i = 0; i < n; ++i) {
    const auto [x, y] = normal(Philox::block(42, 0, i));
    sum += x + y;
    square += x * x + y * y;
    fourth += x * x * x * x + y * y * y * y;
    cross += x * y;
  }
  CHECK(std::abs(sum / (2 * n)) < 0.012);  // 5 standard deviations each
  CHECK(std::abs(square / (2 * n) - 1) < 0.016);
  CHECK(std::abs(fourth / (2 * n) - 3) < 0.11);
  CHECK(std::abs(cross / n) < 0.016);
}

TEST_CASE("normal numbers are finite at the ends of the range") {
  const uint32_t f = 0xffffffffu;
  for (const Block& r : {Block{0, 0, 0, 0}, Block{f, f, f, f}, Block{f, f, 0, 0}}) {
    const auto [x, y] = normal(r);
    CHECK(std::isfinite(x));
    CHECK(std::isfinite(y));
  }
}

TEST_CASE("every new thread begins with one seed, and derived seeds give each its own numbers") {
  const auto drawn = [](auto seed) {
    std::vector<std::vector<double>> all(4);
    for (size_t k = 0; k < all.size(); ++k)
      std::thread([&] {
        seed(k);
        all[k] = models::init::normal(zeros({8}), 0, 1).to_vector();
      }).join();
    return all;
  };
  const auto same = drawn([](size_t) {}),
             own = drawn([](size_t k) { manual_seed(derived_seed(1337, k)); });
  CHECK(own == drawn([](size_t k) { manual_seed(derived_seed(1337, k)); }));
  for (size_t k = 1; k < same.size(); ++k) {
    CHECK(same[k] == same[0]);
    for (size_t j = 0; j < k; ++j) CHECK(own[k] != own[j]);
  }
  CHECK(derived_seed(1, 0) != derived_seed(2, 0));
  CHECK(derived_seed(1, 0) != 1);
}
