// How products sum over k (core/gemm.h): the rule itself, written down once more, bit for bit; and
// what it is for, errors that do not grow with k.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/core/random.h"
#include "minim/ops/functional.h"
#include "minim/tests/gemm_matrix.h"

using namespace minim;

namespace {

/// The sum of a row times a column: chains of 256, added by sixteens, and those by sixteens again.
template <class A>
A sum_by_rule(const Matrix& a, int64_t i, const Matrix& b, int64_t j) {
  const bool fused = isa().level > 0;
  std::vector<A> sums;
  for (int64_t k = 0; k < a.cols; ++k) {
    if (k % 256 == 0) sums.push_back(0);
    const A x = A(a(i, k)), y = A(b(k, j));
    sums.back() = fused ? std::fma(x, y, sums.back()) : x * y + sums.back();
  }
  while (sums.size() > 1) {
    std::vector<A> next;
    for (size_t s = 0; s < sums.size(); ++s)
      s % 16 == 0 ? next.push_back(sums[s]) : void(next.back() += sums[s]);
    sums = next;
  }
  return sums.empty() ? A(0) : sums[0];
}

/// How many elements of c are not alpha times the sum, plus the bias, plus what c held.
template <class A>
int differing(const GemmArgs& g, const Matrix& a, const Matrix& b, const Matrix& c,
              const Matrix& before, const Matrix* bias) {
  int count = 0;
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      A x = sum_by_rule<A>(a, i, b, j) * A(g.alpha);
      if (bias) x += A((*bias)(0, j));
      if (g.accumulate) x += A(before(i, j));
      double wide = x, kept;
      std::byte rounded[8];
      store_run(rounded, c.dtype, 1, 1, &wide);
      count += c(i, j) != *load_run(rounded, c.dtype, 1, 1, &kept);
    }
  return count;
}

constexpr int64_t kDepths[] = {1,
                               2,
                               255,
                               256,
                               257,
                               300,
                               511,
                               512,
                               513,
                               1000,
                               1024,
                               1025,
                               2100,
                               4095,
                               4096,
                               4097,
                               4352,
                               8192,
                               9001,
                               65536,
                               65537,
                               70001,
                               (1 << 20) + 5000};

struct Sums {
  double worst = 0, mean = 0;  ///< error over the sum of magnitudes, in units of 2^-24 or 2^-53
};
Sums errors(DType operands, DType result, int64_t m, int64_t n, int64_t k, bool positive) {
  Matrix a(operands, m, k, Layout::row_major, 1), b(operands, k, n, Layout::col_major, 2),
      c(result, m, n, Layout::row_major, 3);
  uint64_t at = 0;
  auto fill = [&](Matrix& x) {
    std::vector<double> line(size_t(x.rows * x.row_stride + x.cols * x.col_stride + 8));
    for (double& v : line) {
      v = uniform01(Philox::block(7, 1, ++at)[0]);
      if (!positive) v = 2 * v - 1;
    }
    store_run(x.bytes.data(), x.dtype, 1, Index(line.size()), line.data());
  };
  fill(a), fill(b);
  gemm(product(a, b, c));
  auto widened = [&](const Matrix& x, bool by_rows) {
    std::vector<double> y;
    for (int64_t i = 0; i < (by_rows ? x.rows : x.cols); ++i)
      for (int64_t p = 0; p < k; ++p) y.push_back(by_rows ? x(i, p) : x(p, i));
    return y;
  };
  const std::vector<double> rows = widened(a, true), columns = widened(b, false);
  auto sums_in = [&]<class Wide>(Wide) {  // wide enough for errors of the result's dtype
    Sums all;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        Wide exact = 0, magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          const Wide x = Wide(rows[size_t(i * k + p)]) * Wide(columns[size_t(j * k + p)]);
          exact += x, magnitude += std::fabs(x);
        }
        const double error = double(std::fabs(Wide(c(i, j)) - exact) / magnitude) *
                             (result == DType::f64 ? 0x1p53 : 0x1p24);
        all.worst = std::max(all.worst, error), all.mean += error / double(m * n);
      }
    return all;
  };
  return result == DType::f64 ? sums_in(0.0L) : sums_in(0.0);
}

/// The largest error of an element over its own value, in units of 2^-24.
double relative(const Tensor& x, const Tensor& exact) {
  const auto a = x.to_vector(), b = exact.to_vector();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(a[i] - b[i]) / std::fabs(b[i]) * 0x1p24);
  return worst;
}
/// Of all, over the largest value.
double absolute(const Tensor& x, const Tensor& exact) {
  const auto a = x.to_vector(), b = exact.to_vector();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(a[i] - b[i])), largest = std::max(largest, std::fabs(b[i]));
  return worst / largest * 0x1p24;
}

Tensor numbers(const Shape& shape, uint64_t stream, double from, double to) {
  std::vector<double> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = from + (to - from) * uniform01(Philox::block(5, stream, i)[0]);
  return tensor(values, shape, DType::f32);
}

/// Attention's output and the gradients of q, k and v, with values and gradients in [0, 1); in
/// f64 by the plain formula.
std::vector<Tensor> attention(Index heads, Index shared, Index queries, Index keys, DType dtype,
                              bool causal = false) {
  Tensor in[] = {numbers({1, heads, queries, 16}, 1, -0.5, 0.5),
                 numbers({1, shared, keys, 16}, 2, -0.5, 0.5),
                 numbers({1, shared, keys, 16}, 3, 0, 1)};
  for (Tensor& x : in) x = x.to(dtype).set_requires_grad();
  const Tensor y = scaled_dot_product_attention(
      in[0], in[1], in[2], {},
      {.causal = causal,
       .kernel = dtype == DType::f64 ? AttentionKernel::reference : AttentionKernel::fused});
  y.backward(numbers({1, heads, queries, 16}, 4, 0, 1).to(dtype));
  return {y, in[0].grad(), in[1].grad(), in[2].grad()};
}

}  // namespace

TEST_CASE("gemm: a product has the bits of its rule, at any depth, layout and mix of dtypes") {
  const DType mixes[][3] = {
      {DType::f32, DType::f32, DType::f32},   {DType::f64, DType::f64, DType::f64},
      {DType::bf16, DType::bf16, DType::f32}, {DType::bf16, DType::bf16, DType::bf16},
      {DType::f16, DType::f16, DType::f16},   {DType::f16, DType::f32, DType::f32}};
  unsigned round = 0;
  for (int64_t k : kDepths)
    for (const auto& mix : mixes) {
      ++round;
      if (k > 100000 && mix[0] != DType::bf16) continue;
      const Layout la = Layout(round % 3), lb = Layout(round / 3 % 3);
      const int64_t m = k > 100000 ? 1 : k > 20000 ? 2 : 13;
      const int64_t n = k > 100000 ? 1 : k > 20000 ? 3 : round % 2 ? 35 : 32;
      Matrix a(mix[0], m, k, la, round), b(mix[1], k, n, lb, round + 1),
          c(mix[2], m, n, Layout::row_major, 3), bias(mix[0], 1, n, Layout::row_major, 4),
          before = c;
      GemmArgs g = product(a, b, c);
      const bool with_bias = round % 5 == 1;
      if (with_bias) g.bias = bias.bytes.data(), g.bias_dtype = bias.dtype;
      g.accumulate = round % 7 == 2;
      g.alpha = round % 11 == 3 ? 0.5 : 1;
      gemm(g);
      INFO(std::string(isa().name), " k ", k, " ", name_of(mix[0]), " ", name_of(mix[1]), " ",
           name_of(mix[2]));
      const Matrix* added = with_bias ? &bias : nullptr;
      CHECK((mix[0] == DType::f64 ? differing<double>(g, a, b, c, before, added)
                                  : differing<float>(g, a, b, c, before, added)) == 0);
    }
}

TEST_CASE("gemm: the error of a product does not grow with k") {
  struct Limit {
    int64_t k;
    double positive, random;  // PyTorch 2.15 on the CPU: 6.7 and 0.6, 6.1 and 0.14, 18 and 0.09
  };
  for (const Limit& at : {Limit{4096, 6, 0.6}, Limit{65536, 6, 0.15}, Limit{1 << 20, 6, 0.05}})
    for (auto [operands, result] :
         {std::pair{DType::f32, DType::f32}, std::pair{DType::f64, DType::f64},
          std::pair{DType::bf16, DType::f32}, std::pair{DType::f16, DType::f32}}) {
      const int64_t m = at.k > 100000 ? 2 : at.k > 10000 ? 4 : 16, n = at.k > 10000 ? 8 : 32;
      const Sums positive = errors(operands, result, m, n, at.k, true);
      const Sums random = errors(operands, result, m, n, at.k, false);
      INFO(std::string(isa().name), " k ", at.k, " ", std::string(name_of(operands)),
           ": of positive numbers ", positive.worst, ", on average ", positive.mean,
           ", of random ones ", random.worst);
      CHECK(positive.worst < at.positive);
      CHECK(positive.mean < 2);
      CHECK(random.worst < at.random);
    }
}

TEST_CASE("gemm: a linear's gradient over 4096 rows is within 6 units of 2^-24") {
  std::vector<Tensor> gradients;
  for (DType d : {DType::f32, DType::f64}) {
    const Tensor x = numbers({4096, 40}, 1, 0, 1).to(d);
    const Tensor weight = numbers({24, 40}, 2, 0, 1).to(d).set_requires_grad();
    linear(x, weight).backward(numbers({4096, 24}, 3, 0, 1).to(d));
    gradients.push_back(weight.grad());
  }
  const double worst = relative(gradients[0], gradients[1]);
  INFO(worst);
  CHECK(worst < 6);
}

TEST_CASE("gemm: errors of attention do not grow with the number of keys or of queries") {
  struct Long {
    Index heads, shared, queries, keys;
    bool causal;
    double output, d_q, d_k, d_v;  ///< limits; single chains gave the numbers at the right
  };
  // Where a sum is short, or a difference (d_q), its own error is the larger part.
  const Long all[] = {
      {2, 2, 100, 4096, false, 8, 45, 12, 14},   // 60 35 7 11; PyTorch 2.15 on the CPU 6 17 10 5
      {2, 1, 4096, 200, false, 22, 45, 7, 7},    // 17 29 31 50; 18 25 5 5
      {1, 1, 3, 40000, false, 9, 20, 15, 8},     // 144 107 10 3; 9 47 13 12
      {2, 1, 7000, 40, false, 15, 45, 7, 7},     // 8 30 31 49; 9 28 6 6
      {1, 1, 3500, 3500, true, 22, 20, 14, 12},  // 54 10 58 44; 14 16 15 11
      {17, 17, 3300, 30, true, 15, 20, 7, 8},    // 8 9 31 47
  };
  for (const Long& l : all) {
    const auto x = attention(l.heads, l.shared, l.queries, l.keys, DType::f32, l.causal);
    const auto exact = attention(l.heads, l.shared, l.queries, l.keys, DType::f64, l.causal);
    const double errors[] = {relative(x[0], exact[0]), absolute(x[1], exact[1]),
                             absolute(x[2], exact[2]), absolute(x[3], exact[3])};
    INFO(std::string(isa().name), " ", l.queries, " queries, ", l.keys, " keys: ", errors[0], " ",
         errors[1], " ", errors[2], " ", errors[3]);
    CHECK(errors[0] < l.output);
    CHECK(errors[1] < l.d_q);
    CHECK(errors[2] < l.d_k);
    CHECK(errors[3] < l.d_v);
  }
}

TEST_CASE("gemm: threads do not change a bit of sums over many keys, queries or numbers") {
  const int before = threads();
  std::vector<std::vector<double>> first;
  for (int n : {1, 2, 4}) {
    set_threads(n);
    std::vector<Tensor> all = attention(2, 1, 3, 20000, DType::f32);
    for (const auto& [heads, shared] : {std::pair<Index, Index>{2, 1}, {17, 17}})
      for (const Tensor& x : attention(heads, shared, 3200, 30, DType::f32, true)) all.push_back(x);
    all.push_back(matmul(numbers({100, 9001}, 1, -1, 1), numbers({9001, 300}, 2, -1, 1)));
    for (size_t i = 0; i < all.size(); ++i)
      if (n == 1)
        first.push_back(all[i].to_vector());
      else
        CHECK(all[i].to_vector() == first[i]);
  }
  set_threads(before);
}

TEST_CASE("gemm: errors of a convolution's weight gradient do not grow with the batch") {
  std::vector<Tensor> gradients;
  for (DType d : {DType::f32, DType::f64}) {
    const Tensor x = numbers({6000, 1, 3, 3}, 1, 0, 1).to(d);
    const Tensor weight = numbers({2, 1, 2, 2}, 2, 0, 1).to(d).set_requires_grad();
    conv2d(x, weight).backward(numbers({6000, 2, 2, 2}, 3, 0, 1).to(d));
    gradients.push_back(weight.grad());
  }
  const double worst = relative(gradients[0], gradients[1]);
  INFO(worst);
  CHECK(worst < 3);
  // f64 has the same order of sums: against images one by one.
  const Tensor x = numbers({6000, 1, 3, 3}, 1, 0, 1), g = numbers({6000, 2, 2, 2}, 3, 0, 1);
  Tensor alone = zeros({2, 2, 2}, DType::f64);
  for (Index row : {0, 1})
    for (Index col : {0, 1}) {
      const Tensor seen = x.slice(2, row, row + 2).slice(3, col, col + 2).to(DType::f64);
      for (Index o : {0, 1})
        alone.slice(0, o, o + 1)
            .slice(1, row, row + 1)
            .slice(2, col, col + 1)
            .copy_(sum(seen * g.slice(1, o, o + 1).to(DType::f64)).reshape({1, 1, 1}));
    }
  CHECK(relative(gradients[1], alone) < 1e-6);
}
