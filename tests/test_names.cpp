// A program that uses both namespaces whole, and has names of its own.
#include <doctest/doctest.h>

#include <minim/minim.h>

#include <algorithm>
#include <any>
#include <cmath>
#include <numeric>
#include <vector>

// Names that a program may well have, and that minim keeps for itself.
template <class T>
struct In {
  T value;
};
template <class T>
struct Out {
  T value;
};
struct Pair {
  int first, second;
};
template <class T>
struct Tag {};
struct View {};
struct Walk {};
struct Window {};
struct Slide {};
struct Random {};
struct Rowwise {};
struct Pointwise {};
struct Structured {};
struct Number {};

using namespace std;
using namespace minim;

TEST_CASE("using namespace minim brings none of the names that its kernels use") {
  const In<int> in{1};
  const Out<int> out{in.value};
  const Pair pair{out.value, 2};
  CHECK(pair.first == 1);
  [[maybe_unused]] Tag<int> tag;
  [[maybe_unused]] View view;
  [[maybe_unused]] Walk walk;
  [[maybe_unused]] Window window;
  [[maybe_unused]] Slide slide;
  [[maybe_unused]] Random random;
  [[maybe_unused]] Rowwise rowwise;
  [[maybe_unused]] Pointwise pointwise;
  [[maybe_unused]] Structured structured;
  [[maybe_unused]] Number number;
}

TEST_CASE("beside using namespace std a tensor is still made, and ops are still ops") {
  Tensor x = empty({2, 3});
  CHECK(x.dtype() == DType::f32);
  CHECK(x.shape() == Shape{2, 3});
  Tensor h = empty({4}, DType::f16), none = empty({}), one = empty({5});
  CHECK(h.dtype() == DType::f16);
  CHECK(none.rank() == 0);
  CHECK(one.shape() == Shape{5});
  const Index n = 3;
  CHECK(empty({n, n}).shape() == Shape{3, 3});
  x.fill_(0.5);
  CHECK(exp(log(x)).shape() == Shape{2, 3});
  CHECK(pow(x, 2).to_vector()[0] == 0.25);
  CHECK(abs(-x).to_vector()[0] == 0.5);
  CHECK(max(x).item() == 0.5);
  CHECK(min(x, {.axes = {0}}).shape() == Shape{3});
  CHECK(all(x == x).item<bool>());
  CHECK(minim::std(x).item() == 0);
  CHECK(norm(x).dtype() == DType::f32);
}

TEST_CASE("every type of number is an operand") {
  const Tensor x = tensor({1, 2}), k = tensor({1, 2}, DType::i64);
  const vector<int> v(3);
  const vector<vector<double>> twice = {
      (x * v.size()).to_vector(),   (v.size() * x).to_vector(), (x * 3u).to_vector(),
      (x * 3LL).to_vector(),        (x * 3ULL).to_vector(),     (x * short(3)).to_vector(),
      (x * uint8_t(3)).to_vector(), (x * 3.0L).to_vector(),     (x * f16(3.0f)).to_vector(),
      (k * v.size()).to_vector(),   (k * 3u).to_vector(),       (x * bf16(3.0f)).to_vector()};
  for (const auto& values : twice) CHECK(values == vector<double>{3, 6});
  CHECK((k * v.size()).dtype() == DType::i64);
  CHECK((k * 3u).dtype() == DType::i64);
  CHECK((x / v.size()).dtype() == DType::f32);
  CHECK((x + true).to_vector() == vector<double>{2, 3});
  CHECK((x == 1u).to_vector() == vector<double>{1, 0});
  CHECK(maximum(x, v.size()).to_vector() == vector<double>{3, 3});
  CHECK((Tensor(v.size()).dtype() == DType::i64));
  CHECK(Tensor(true).dtype() == DType::boolean);
  CHECK_THROWS_WITH_AS(x * numeric_limits<uint64_t>::max(),
                       doctest::Contains("18446744073709551615 does not fit i64"), Error);
  CHECK(full({1}, v.size()).item() == 3);
}
