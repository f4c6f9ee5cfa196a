// core/sum.h -- the one order in which minim adds: element r goes to lane r % 16; every 1024
// elements the lanes are added to running totals; at the end the 16 totals are added as a tree.
// Every instruction set and every thread count gives these bits, and the error grows with n/16384
// instead of n (see Higham, Accuracy and Stability of Numerical Algorithms, chapter 4).
#pragma once
#include <algorithm>

#include "minim/core/dtype.h"

namespace minim {

inline constexpr Index kLanes = 16, kSumBlock = 1024;

template <class A>
A tree_sum(A* lanes) {
#pragma GCC unroll 4  // in registers
  for (Index o = kLanes / 2; o > 0; o /= 2)
#pragma GCC unroll 8
    for (Index l = 0; l < o; ++l) lanes[l] += lanes[l + o];
  return lanes[0];
}

/// Adds f(begin), ... f(end - 1) to the lanes.
template <class A, class F>
void sum_block(Index begin, Index end, F f, A* lanes) {
  const Index whole = begin + (end - begin) / kLanes * kLanes;
  for (Index j = begin; j < whole; j += kLanes)
    for (Index l = 0; l < kLanes; ++l) lanes[l] += f(j + l);
  for (Index j = whole; j < end; ++j) lanes[j - whole] += f(j);
}

/// f(0) + f(1) + ... + f(n - 1) in minim's order.
template <class A, class F>
A sum16(Index n, F f) {
  A total[kLanes] = {};
  for (Index begin = 0; begin < n; begin += kSumBlock) {
    A lanes[kLanes] = {};
    sum_block(begin, std::min(n, begin + kSumBlock), f, lanes);
    for (Index l = 0; l < kLanes; ++l) total[l] += lanes[l];
  }
  return tree_sum(total);
}

/// sum16 where n is a multiple of kLanes and at most kSumBlock: the lanes, and the tree, stay in
/// registers, since through memory each half would wait for the last.
template <class A, class F>
A sum_whole(Index n, F f) {
  typedef A Lanes __attribute__((vector_size(kLanes * sizeof(A))));
  A lanes[kLanes] = {};
  for (Index j = 0; j < n; j += kLanes)
    for (Index l = 0; l < kLanes; ++l) lanes[l] += f(j + l);
  Lanes all;
  __builtin_memcpy(&all, lanes, sizeof all);
  const auto eight = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

/// The largest f(j); NaN if any is NaN. n >= 1.
template <class A, class F>
A max16(Index n, F f) {
  A lanes[kLanes];
  for (Index l = 0; l < kLanes; ++l) lanes[l] = f(std::min(l, n - 1));
  auto keep = [](A& m, A v) { m = ((v > m) | (v != v)) ? v : m; };
  Index whole = n / kLanes * kLanes;
  for (Index j = kLanes; j < whole; j += kLanes)
#pragma GCC unroll 1  // as 16 choices instead of a loop it would not be vectorised
    for (Index l = 0; l < kLanes; ++l) keep(lanes[l], f(j + l));
  for (Index j = std::max(whole, Index{kLanes}); j < n; ++j) keep(lanes[j % kLanes], f(j));
  for (Index l = 1; l < kLanes; ++l) keep(lanes[0], lanes[l]);
  return lanes[0];
}

}  // namespace minim
