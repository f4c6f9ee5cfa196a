#include <doctest/doctest.h>

#include "minim/core/sum.h"
#include "minim/ops/functional.h"

using namespace minim;

namespace {

/// The order that core/sum.h documents, as plainly as it can be written.
template <class A>
A in_order(const std::vector<float>& x, size_t block) {
  A total[16] = {};
  for (size_t begin = 0; begin < x.size(); begin += block) {
    A lanes[16] = {};
    for (size_t j = begin; j < std::min(x.size(), begin + block); ++j) lanes[j % 16] += A(x[j]);
    for (size_t l = 0; l < 16; ++l) total[l] += lanes[l];
  }
  for (size_t o = 8; o > 0; o /= 2)
    for (size_t l = 0; l < o; ++l) total[l] += total[l + o];
  return total[0];
}

}  // namespace

TEST_CASE("sums are made in 16 lanes and blocks of 1024 and joined as a tree") {
  std::vector<float> x;
  for (uint32_t i = 0; i < 50003; ++i)
    x.push_back((float(i * 2654435761u >> 8) - 9e6f) / float(1 + i % 7));
  const float expected = in_order<float>(x, 1024);
  REQUIRE(expected != in_order<float>(x, 512));  // these numbers can tell
  const Index n = Index(x.size());
  CHECK(sum16<float>(n, [&](Index j) { return x[size_t(j)]; }) == expected);
  const Tensor t = tensor(std::vector<double>(x.begin(), x.end()), {n});
  CHECK(sum(t).item() == double(expected));
  CHECK(sum(t.reshape({1, n}), {.axes = {1}}).item() == double(expected));
  CHECK(mean(t).item() == double(expected / float(n)));
  const float few[] = {1e8f, 1, -1e8f};  // (few[0] + few[2]) + few[1]
  CHECK(sum16<float>(3, [&](Index j) { return few[j]; }) == 1);
  CHECK(sum(tensor({1e8, 1, -1e8})).item() == 1);
}
