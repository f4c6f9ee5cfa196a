#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "minim/models/dataset.h"
#include "minim/models/shuffle.h"
#include "minim/tests/messages.h"

using namespace minim;
using namespace minim::models;
using test::check_says, test::error_of;

TEST_CASE("D5: ten tokens and block ten need one more") {
  check_says(error_of([] { check_length(10, 10); }),
             {"10 tokens", "needs >= 11 tokens", "--block"});
  check_says(error_of([] { batch_starts(1, 0, 0, 4, 10, 10); }), {"needs >= 11 tokens"});
  check_says(error_of([] { check_length(10, 10, "the training text"); }), {"the training text"});
}

TEST_CASE("D5: ten tokens and block nine have exactly one valid start") {
  CHECK_NOTHROW(check_length(10, 9));
  for (int64_t step = 0; step < 20; ++step)
    CHECK(batch_starts(1, step, 0, 3, 10, 9) == std::vector<int64_t>{0, 0, 0});
}

TEST_CASE("a block of no tokens is refused") {
  check_says(error_of([] { check_length(10, 0); }), {"block is 0"});
  check_says(error_of([] { validation_windows(10, -1); }), {"block is -1"});
}

TEST_CASE("starts are a function of seed, step and micro-batch, and of each") {
  const auto at = [](uint64_t seed, int64_t step, int64_t micro) {
    return batch_starts(seed, step, micro, 16, 1000000, 64);
  };
  CHECK(at(1, 2, 3) == at(1, 2, 3));
  CHECK(at(1, 2, 3) != at(2, 2, 3));
  CHECK(at(1, 2, 3) != at(1, 3, 3));
  CHECK(at(1, 2, 3) != at(1, 2, 4));
  CHECK(at(1, 2, 3) != at(1, 3, 2));
  const auto more = batch_starts(1, 2, 3, 20, 1000000, 64);
  CHECK(std::ranges::equal(at(1, 2, 3), std::span(more).first(16)));
}

TEST_CASE("starts reach both ends and are even in between") {
  std::array<int, 10> count{};
  for (int64_t step = 0; step < 1000; ++step)
    for (int64_t s : batch_starts(7, step, 0, 20, 14, 4)) ++count.at(size_t(s));
  for (int c : count) CHECK(std::abs(c - 2000) < 220);  // 5 standard deviations
}

TEST_CASE("a shuffle is a permutation for every size, seed and epoch, and no two are alike") {
  for (uint64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    CAPTURE(n);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; ++i) seen.insert(shuffled(1, 2, i, n));
    CHECK(seen.size() == n);
    CHECK(*seen.rbegin() == n - 1);
  }
  const auto first = [](uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < 50; ++i) order.push_back(shuffled(seed, epoch, i, 1000000007));
    return order;
  };
  CHECK(first(1, 2) == first(1, 2));
  CHECK(first(1, 2) != first(1, 3));
  CHECK(first(1, 2) != first(2, 2));
}

TEST_CASE("a shuffle sends every position everywhere equally often, and so each pair") {
  for (uint64_t n : {2, 3, 5, 16, 20}) {
    CAPTURE(n);
    std::vector<int> count(n * n), pairs(n * n);
    const int epochs = 4000;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      for (uint64_t i = 0; i < n; ++i) ++count[i * n + shuffled(3, epoch, i, n)];
      ++pairs[shuffled(4, epoch, 0, n) * n + shuffled(4, epoch, 1, n)];
    }
    const double mean = double(epochs) / double(n), pair = mean / double(n - 1);
    for (int c : count) CHECK(std::abs(c - mean) < 5 * std::sqrt(mean));
    for (uint64_t i = 0; i < n * n; ++i)
      CHECK(std::abs(pairs[i] - (i % (n + 1) ? pair : 0)) < 5 * std::sqrt(pair));
  }
}

TEST_CASE("an epoch reads every whole block once, however it is batched, and the next differs") {
  const int64_t n = 103, block = 10;  // 10 blocks; tokens 101 and 102 are in none
  std::vector<int64_t> one, other;
  for (int64_t at = 0; at < 20; at += 4)
    for (int64_t s : epoch_starts(5, at, 4, n, block)) one.push_back(s);
  for (int64_t s : epoch_starts(5, 0, 20, n, block)) other.push_back(s);
  CHECK(one == other);
  const std::span<int64_t> all(one);
  const std::set<int64_t> first(one.begin(), one.begin() + 10), second(one.begin() + 10, one.end());
  CHECK(first == std::set<int64_t>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90});
  CHECK(second == first);
  CHECK_FALSE(std::ranges::equal(all.first(10), all.last(10)));
  CHECK(epoch_starts(5, 7, 2, 101, 100) == std::vector<int64_t>{0, 0});
  check_says(error_of([] { epoch_starts(1, 0, 4, 10, 10); }), {"needs >= 11 tokens"});
}

TEST_CASE("validation windows make every token but the first a target once") {
  CHECK(validation_windows(10, 4) == std::vector<Window>{{0, 4}, {4, 4}, {8, 1}});
  CHECK(validation_windows(9, 4) == std::vector<Window>{{0, 4}, {4, 4}});
  CHECK(validation_windows(3, 100) == std::vector<Window>{{0, 2}});
  for (int64_t n : {2, 3, 17, 64, 65, 66})
    for (int64_t block : {1, 2, 16, 64}) {
      std::multiset<int64_t> targets;
      for (const Window& w : validation_windows(n, block))
        for (int64_t i = 1; i <= w.length; ++i) targets.insert(w.start + i);
      CHECK(targets.size() == size_t(n - 1));
      for (int64_t t = 1; t < n; ++t) CHECK(targets.count(t) == 1);
    }
  check_says(error_of([] { validation_windows(1, 4); }), {"needs >= 2"});
}
