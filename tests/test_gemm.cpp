#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "minim/core/convert.h"
#include "minim/core/gemm.h"
#include "minim/core/parallel.h"
#include "minim/core/probe.h"
#include "minim/tests/gemm_matrix.h"

using namespace minim;

namespace {

/// Checks c against sums in f64. Each of the roundings of a sum, at most 256 in a block and 16 a
/// level, is off by at most eps times the sum of magnitudes, the store by half a unit of its dtype.
/// @param before what c held
void check_product(const GemmArgs& g, const Matrix& a, const Matrix& b, const Matrix& c,
                   const Matrix& before, const Matrix* bias) {
  bool f64 = a.dtype == DType::f64 || b.dtype == DType::f64 || c.dtype == DType::f64 ||
             (bias && bias->dtype == DType::f64);
  const double eps = f64 ? 0x1p-52 : 0x1p-24, store = std::ldexp(1.0, -info(c.dtype).digits);
  double worst = 0;  // of error / bound
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < g.k; ++k)
        sum += a(i, k) * b(k, j), magnitude += std::fabs(a(i, k) * b(k, j));
      double extra = (bias ? (*bias)(0, j) : 0.0) + (g.accumulate ? before(i, j) : 0.0);
      double exact = g.alpha * sum + extra;
      double bound = double(std::min<int64_t>(g.k, 256 + 3 * 16) + 3) * eps *
                     (std::fabs(g.alpha) * magnitude + 8) * 1.01;
      bound += store * (std::fabs(exact) + bound);
      double ratio = std::fabs(c(i, j) - exact) / bound;
      worst = std::isnan(ratio) ? INFINITY : std::max(worst, ratio);
    }
  CHECK(worst <= 1.0);
}

struct Shape {
  int64_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},   {13, 17, 33},   {29, 1030, 31}, {29, 31, 1030},
                         {1, 70, 40}, {5, 1, 9},      {12, 32, 128},  {97, 33, 130},
                         {6, 16, 2},  {40, 64, 2100}, {200, 150, 7},  {3, 5, 0},
                         {7, 64, 12}, {26, 32, 40},   {15, 96, 5},    {9, 40, 4500}};

std::vector<std::byte> run_on(int n_threads, const GemmArgs& args, Matrix& c) {
  set_threads(n_threads);
  std::ranges::fill(c.bytes, std::byte{0xff});  // not what an earlier run left
  gemm(args);
  return c.bytes;
}

struct RestoreThreads {
  int n = threads();
  ~RestoreThreads() { set_threads(n); }
};

}  // namespace

TEST_CASE("a product of any shape, layout and mix of dtypes is within the bound of its roundings") {
  const DType mixes[][3] = {
      {DType::f32, DType::f32, DType::f32},   {DType::bf16, DType::bf16, DType::bf16},
      {DType::f16, DType::f16, DType::f16},   {DType::bf16, DType::f32, DType::f32},
      {DType::f32, DType::f16, DType::bf16},  {DType::f64, DType::f64, DType::f64},
      {DType::bf16, DType::f64, DType::f32},  {DType::f32, DType::f32, DType::f64},
      {DType::f8e4m3, DType::f32, DType::f32}};
  const Layout layouts[] = {Layout::row_major, Layout::col_major, Layout::scattered};
  unsigned round = 0;
  for (auto [m, n, k] : kShapes)
    for (auto& mix : mixes)
      for (Layout la : layouts)
        for (Layout lb : layouts) {
          if (m * n * k > 200000 && (round % 3)) {  // the large ones: a third of the combinations
            ++round;
            continue;
          }
          ++round;
          Matrix a(mix[0], m, k, la, round), b(mix[1], k, n, lb, round + 1),
              c(mix[2], m, n, Layout::row_major, 3);
          Matrix bias(round % 2 ? DType::f32 : mix[0], 1, n, Layout::row_major, 4), before = c;
          GemmArgs g = product(a, b, c);
          const bool with_bias = round % 4 < 2;
          if (with_bias) g.bias = bias.bytes.data(), g.bias_dtype = bias.dtype;
          g.alpha = round % 5 ? 1.0 : -0.375;
          g.accumulate = round % 7 < 3;
          INFO(m << 'x' << n << 'x' << k << ' ' << name_of(mix[0]) << ' ' << name_of(mix[1]) << ' '
                 << name_of(mix[2]) << " layouts " << int(la) << int(lb) << " bias " << with_bias
                 << " alpha " << g.alpha << " acc " << g.accumulate);
          gemm(g);
          check_product(g, a, b, c, before, with_bias ? &bias : nullptr);
          Matrix padding = before;
          for (int64_t i = 0; i < m; ++i)
            std::memcpy(advance(padding.bytes.data(), c.dtype, i * c.row_stride),
                        advance(c.bytes.data(), c.dtype, i * c.row_stride),
                        size_t(n) * size_of(c.dtype));
          CHECK(padding.bytes == c.bytes);  // nothing was written beside c
        }
}

TEST_CASE("the reference product is within one rounding of the sums in f64") {
  for (DType d : kFloatDTypes) {
    Matrix a(d, 7, 20, Layout::col_major, 1), b(d, 20, 9, Layout::scattered, 2),
        c(d, 7, 9, Layout::row_major, 3), before = c;
    GemmArgs g = product(a, b, c);
    g.accumulate = true;
    gemm_reference(g);
    for (int64_t i = 0; i < 7; ++i)
      for (int64_t j = 0; j < 9; ++j) {
        double sum = 0, stored;
        for (int64_t k = 0; k < 20; ++k) sum += a(i, k) * b(k, j);
        sum += before(i, j);
        std::vector<std::byte> rounded(8);
        store_run(rounded.data(), d, 1, 1, &sum);
        CHECK(c(i, j) == *load_run(rounded.data(), d, 1, 1, &stored));
      }
  }
}

TEST_CASE("small whole numbers are multiplied exactly, with every dtype") {
  for (DType d : kFloatDTypes) {
    Matrix a(d, 50, 40, Layout::row_major, 1), b(d, 40, 70, Layout::row_major, 2),
        c(d, 50, 70, Layout::row_major, 3);
    for (Matrix* x : {&a, &b})
      for (int64_t i = 0; i < x->rows * x->row_stride; ++i) {
        double v = double(i % 3) - 1.0;
        store_run(advance(x->bytes.data(), d, i), d, 1, 1, &v);
      }
    gemm(product(a, b, c));
    Matrix expected = c;
    gemm_reference(product(a, b, expected));
    CHECK(c.bytes == expected.bytes);
  }
}

TEST_CASE("the bits of a product do not depend on the number of threads or on how it is cut") {
  RestoreThreads restore;
  for (DType d : {DType::f32, DType::f16, DType::bf16, DType::f64})
    for (auto [m, n, k] : {Shape{300, 260, 150}, Shape{40, 2100, 64}, Shape{130, 130, 2100},
                           Shape{100, 300, 600}, Shape{40, 70, 9001}}) {
      Matrix a(d, m, k, Layout::row_major, 1), b(d, k, n, Layout::col_major, 2),
          c(d, m, n, Layout::row_major, 3);
      GemmArgs g = product(a, b, c);
      auto one = run_on(1, g, c);
      CHECK(run_on(2, g, c) == one);
      CHECK(run_on(4, g, c) == one);
      for (int64_t i = 0; i < m; ++i) {  // row by row
        GemmArgs row = g;
        row.m = 1;
        row.a.data = advance(g.a.data, d, i * g.a.row_stride);
        row.c = advance(g.c, d, i * g.c_row_stride);
        gemm(row);
      }
      CHECK(c.bytes == one);
    }
}

TEST_CASE("a product of 16-bit operands has the bits of the same one in f32, with subnormals too") {
  struct Range {
    DType dtype;
    const char* name;
    int least, most;  // exponents of a
    bool specials;
    int of_b = 0;
  };
  // 2^-133 is the smallest bf16; products of the third are around the smallest normal f32
  constexpr DType f16 = DType::f16, bf16 = DType::bf16;
  const Range ranges[] = {{bf16, "ordinary", -20, 4, false},
                          {bf16, "subnormal operands", -133, -127, false},
                          {bf16, "subnormal products", -126, -110, false},
                          {bf16, "subnormal products of normal numbers", -95, -85, false, -40},
                          {bf16, "all", -133, 120, false},
                          {bf16, "zeros, infinities and NaN", -133, 127, true},
                          {f16, "subnormal operands of f16", -24, -14, false},
                          {f16, "all of f16", -24, 14, false},
                          {f16, "zeros, infinities and NaN of f16", -24, 14, true}};
  unsigned seed = 0;
  for (const Range& range : ranges)
    for (auto [m, n, k] :
         {Shape{29, 45, 19}, Shape{97, 133, 130}, Shape{5, 40, 2101}, Shape{29, 64, 40}})
      for (Layout la : {Layout::row_major, Layout::col_major})
        for (Layout lb : {Layout::row_major, Layout::col_major})
          for (DType out : {DType::f32, range.dtype}) {
            std::minstd_rand random(++seed);
            Matrix a(range.dtype, m, k, la, seed), b(range.dtype, k, n, lb, seed + 1),
                c(out, m, n, Layout::row_major, 3), expected = c;
            for (int64_t i = 0; i < k; ++i)
              for (int64_t j = 0; j < n; ++j) b.set(i, j, std::ldexp(b(i, j), range.of_b));
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < k; ++j) {
                double x = std::ldexp(
                    a(i, j), range.least + int(random() % unsigned(range.most - range.least + 1)));
                // a first slab of a deep product may be small, and the next ones add nothing
                if (k > 2000) x = j < 600 ? std::ldexp(a(i, j), range.least) : i == 0 ? 0 : x;
                const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN};
                if (range.specials && random() % 64 == 0) x = special[random() % 5];
                a.set(i, j, x);
              }
            auto widened = [](const Matrix& from, Layout layout) {
              Matrix to(DType::f32, from.rows, from.cols, layout, 0);
              for (int64_t i = 0; i < from.rows; ++i)
                for (int64_t j = 0; j < from.cols; ++j) to.set(i, j, from(i, j));
              return to;
            };
            gemm(product(a, b, c));
            const Matrix wide_a = widened(a, la), wide_b = widened(b, lb);
            gemm(product(wide_a, wide_b, expected));
            int wrong = 0;
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) {
                const double x = c(i, j), y = expected(i, j);
                wrong +=
                    std::isnan(y) ? !std::isnan(x) : x != y || std::signbit(x) != std::signbit(y);
              }
            INFO(range.name, ", ", m, "x", n, "x", k, " ", int(la), int(lb), " ", name_of(out));
            CHECK(wrong == 0);
          }
}

TEST_CASE("a product whose roundings are counted has the bits of one that rounds in registers") {
  struct Counts : Probe {
    void stored_half(int64_t n, int64_t) override { seen += n; }
    std::atomic<int64_t> seen = 0;
  };
  for (DType d : {DType::f16, DType::bf16})
    for (auto [m, n, k] :
         {Shape{29, 45, 19}, Shape{100, 300, 40}, Shape{3, 64, 2100}, Shape{29, 64, 40}})
      for (bool with_bias : {false, true}) {
        Matrix a(d, m, k, Layout::row_major, 1), b(d, k, n, Layout::row_major, 2),
            c(d, m, n, Layout::row_major, 3), bias(DType::f32, 1, n, Layout::row_major, 4);
        GemmArgs g = product(a, b, c);
        if (with_bias) g.bias = bias.bytes.data();
        gemm(g);
        const auto in_registers = c.bytes;
        Counts probe;
        ProbeScope counting(&probe);
        gemm(g);
        CHECK(c.bytes == in_registers);
        CHECK(probe.seen > m * n / 2);
      }
}

TEST_CASE("a sum of bf16 products that underflows keeps its sign at any depth") {
  for (int64_t k : {1, 2, 3, 5, 1025})
    for (bool along_k : {false, true}) {
      const int64_t line = along_k ? k : 1, step = along_k ? 1 : 2;
      std::vector<float> a(size_t(2 * k)), b(size_t(2 * k), 0x1p-120f);
      for (int64_t i = 0; i < 2; ++i) a[size_t(i * line + (k - 1) * step)] = -0x1p-120f;
      const std::vector<bf16> half_a(a.begin(), a.end()), half_b(b.begin(), b.end());
      float c[4], expected[4];
      auto product_into = [&](float* to, DType d, const void* x, const void* y) {
        GemmArgs g;
        g.m = g.n = g.c_row_stride = 2, g.k = k, g.c = to;
        g.a = {x, d, line, step}, g.b = {y, d, step, line};
        gemm(g);
      };
      product_into(expected, DType::f32, a.data(), b.data());
      product_into(c, DType::bf16, half_a.data(), half_b.data());
      CHECK(std::memcmp(c, expected, sizeof c) == 0);
    }
}

TEST_CASE("a batch gives the bits of its products one by one") {
  RestoreThreads restore;
  for (auto [m, n, k] : {Shape{64, 64, 32}, Shape{300, 200, 250}}) {
    std::vector<Matrix> a, b, c;
    for (unsigned i = 0; i < 6; ++i) {
      a.emplace_back(DType::bf16, m, k, Layout::row_major, i);
      b.emplace_back(DType::bf16, k, n, Layout::col_major, 90 + i);
      c.emplace_back(DType::f32, m, n, Layout::row_major, 0);
    }
    auto alone = c;
    std::vector<GemmArgs> batch;
    for (size_t i = 0; i < 6; ++i) {
      gemm(product(a[i], b[i], alone[i]));
      batch.push_back(product(a[i], b[i], c[i]));
    }
    for (int t : {1, 3}) {
      set_threads(t);
      gemm_batched(batch);
      for (size_t i = 0; i < 6; ++i) CHECK(c[i].bytes == alone[i].bytes);
    }
  }
  gemm_batched({});
}

TEST_CASE("a product over nothing is the bias or zeros, and one with no elements touches nothing") {
  float c[] = {7, 7, 7, 7};
  const float bias[] = {1, 2};
  GemmArgs g{.m = 2, .n = 2, .k = 0, .a = {}, .b = {}, .c = c, .c_row_stride = 2};
  gemm(g);
  for (float x : c) CHECK(x == 0.0f);
  g.bias = bias;
  gemm(g);
  CHECK(c[2] == 1.0f);
  CHECK(c[3] == 2.0f);
  g.m = 0;
  c[0] = 9;
  gemm(g);
  CHECK(c[0] == 9.0f);
}

TEST_CASE("a product follows strides of zero and below") {
  const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30};
  float c[2];
  gemm({.m = 2,
        .n = 1,
        .k = 3,
        .a = {x + 5, DType::f32, -3, -1},
        .b = {y, DType::f32, 1, 1},
        .c = c,
        .c_row_stride = 1});
  CHECK(c[0] == 280.0f);  // 6 5 4
  CHECK(c[1] == 100.0f);  // 3 2 1
  gemm({.m = 2,
        .n = 1,
        .k = 3,
        .a = {x, DType::f32, 0, 1},
        .b = {y, DType::f32, 0, 0},
        .c = c,
        .c_row_stride = 1});
  CHECK(c[0] == 60.0f);
  CHECK(c[1] == 60.0f);
}

TEST_CASE("NaN and infinity pass through a product, and 16-bit results overflow to infinity") {
  const float a[] = {std::numeric_limits<float>::quiet_NaN(), 1, 60000, 60000}, b[] = {1, 1};
  f16 c[2];
  gemm({.m = 2,
        .n = 1,
        .k = 2,
        .a = {a, DType::f32, 2, 1},
        .b = {b, DType::f32, 1, 1},
        .c = c,
        .c_dtype = DType::f16,
        .c_row_stride = 1});
  CHECK(std::isnan(float(c[0])));
  CHECK(float(c[1]) == std::numeric_limits<float>::infinity());
}

TEST_CASE("a product refuses integers, negative sizes and missing operands, saying which") {
  float x[4] = {};
  GemmArgs good{.m = 2,
                .n = 2,
                .k = 2,
                .a = {x, DType::f32, 2, 1},
                .b = {x, DType::f32, 2, 1},
                .c = x,
                .c_row_stride = 2};
  GemmArgs g = good;
  g.b.dtype = DType::i32;
  CHECK_THROWS_WITH_AS(
      gemm(g), "gemm: b is i32; a matrix product takes f16, bf16, f32 or f64: cast it first",
      Error);
  g = good;
  g.c_dtype = DType::boolean;
  CHECK_THROWS_AS(gemm_reference(g), Error);
  g = good;
  g.n = -1;
  CHECK_THROWS_AS(gemm(g), Error);
  g = good;
  g.a.data = nullptr;
  CHECK_THROWS_WITH_AS(gemm(g), "gemm: a is null", Error);
}
