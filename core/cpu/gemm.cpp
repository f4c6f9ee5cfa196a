#include "minim/core/gemm.h"

#include <algorithm>

#include "minim/core/convert.h"
#include "minim/core/cpu/product.h"

namespace minim {

using namespace detail;

namespace {

double operations(const GemmArgs& g) {
  return 2.0 * double(g.m) * double(g.n) * double(std::max<int64_t>(g.k, 1));
}

void check(const GemmArgs& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0)
    fail("gemm: m, n, k must be 0 or more, not ", g.m, ", ", g.n, ", ", g.k);
  auto operand = [](const char* name, const void* data, DType dtype, bool needed) {
    if (needed && !data) fail("gemm: ", name, " is null");
    if (!is_floating(dtype))
      fail("gemm: ", name, " is ", name_of(dtype),
           "; a matrix product takes f16, bf16, f32 or f64: cast it first");
  };
  const bool writes = g.m > 0 && g.n > 0, reads = writes && g.k > 0;
  operand("a", g.a.data, g.a.dtype, reads);
  operand("b", g.b.data, g.b.dtype, reads);
  operand("c", g.c, g.c_dtype, writes);
  operand("bias", g.bias, g.bias_dtype, false);
}

bool in_f64(const GemmArgs& g) {
  return g.a.dtype == DType::f64 || g.b.dtype == DType::f64 || g.c_dtype == DType::f64 ||
         (g.bias && g.bias_dtype == DType::f64);
}

bool in_pairs(const GemmArgs& g) {
  auto fits = [](const MatrixRef& x) {
    return x.dtype == DType::bf16 && (x.row_stride == 1 || x.col_stride == 1);
  };
  return isa().pairs && fits(g.a) && fits(g.b);
}

/// Small enough that packing would cost more than it saves, and laid out as a tile reads it.
bool runs_unpacked(const GemmArgs& g) {
  constexpr int64_t kSmall = 4096;  // numbers of an operand: 16 KB
  auto fits = [](DType d) { return d == DType::f32 || is_half(d); };
  const bool dense = g.b.col_stride == 1 && g.n % isa().f32.cols == 0 &&
                     (g.a.dtype == DType::f32 || g.a.col_stride == 1);
  const bool plain = !g.bias && g.alpha == 1 && !g.accumulate;
  return dense && plain && g.k * std::max(g.m, g.n) <= kSmall && fits(g.a.dtype) &&
         fits(g.b.dtype) && (g.c_dtype == DType::f32 || (fits(g.c_dtype) && !Probe::current()));
}

/// The matrix in f32, converted into `room` if it is not.
MatrixRef in_f32(const MatrixRef& x, int64_t rows, int64_t cols, float* room) {
  if (x.dtype == DType::f32) return x;
  const bool one_run = x.row_stride == cols;
  for (int64_t i = 0; i < (one_run ? 1 : rows); ++i)
    load_run(advance(x.data, x.dtype, i * x.row_stride), x.dtype, 1, one_run ? rows * cols : cols,
             room + i * cols);
  return {room, DType::f32, cols, 1};
}

void multiply_unpacked(const GemmArgs& g) {
  const bool convert = g.a.dtype != DType::f32 || g.b.dtype != DType::f32;
  const Scratch<float> room(convert ? size_t((g.m + g.n) * g.k) : 0);
  const MatrixRef a = in_f32(g.a, g.m, g.k, room.data());
  const MatrixRef b = in_f32(g.b, g.k, g.n, room.data() + g.m * g.k);
  isa().f32.multiply_unpacked(g.m, g.n, g.k, static_cast<const float*>(a.data), a.row_stride,
                              a.col_stride, static_cast<const float*>(b.data), b.row_stride,
                              stored<float>(g.c, g.c_dtype, g.c_row_stride));
}

}  // namespace

void gemm(const GemmArgs& args) {
  check(args);
  if (args.m == 0 || args.n == 0) return;
  if (in_f64(args))
    Product(args, Wide<double>{isa().f64}).run();
  else if (in_pairs(args))
    Product(args, Paired{}).run();
  else if (runs_unpacked(args))
    multiply_unpacked(args);
  else
    Product(args, Wide<float>{isa().f32}).run();
}

void gemm_batched(std::span<const GemmArgs> batch) {
  double most = 1;
  for (const GemmArgs& g : batch) most = std::max(most, operations(g));
  const bool few_and_large = batch.size() < 8 && most > 16 * kWorthAThread;
  const int64_t n = int64_t(batch.size());
  const int64_t grain = few_and_large ? n : std::max<int64_t>(1, int64_t(kWorthAThread / most));
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (const GemmArgs& g : batch.subspan(size_t(begin), size_t(end - begin))) gemm(g);
  });
}

void gemm_reference(const GemmArgs& g) {
  check(g);
  auto at = [](const void* data, DType dtype, int64_t offset) {
    double x;
    return *load_run(advance(data, dtype, offset), dtype, 1, 1, &x);
  };
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < g.k; ++k)
        sum += at(g.a.data, g.a.dtype, i * g.a.row_stride + k * g.a.col_stride) *
               at(g.b.data, g.b.dtype, k * g.b.row_stride + j * g.b.col_stride);
      double value = g.alpha * sum + (g.bias ? at(g.bias, g.bias_dtype, j) : 0.0);
      int64_t offset = i * g.c_row_stride + j;
      if (g.accumulate) value += at(g.c, g.c_dtype, offset);
      store_run(advance(g.c, g.c_dtype, offset), g.c_dtype, 1, 1, &value);
    }
}

}  // namespace minim
