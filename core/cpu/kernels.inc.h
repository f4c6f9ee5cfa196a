// core/cpu/kernels.inc.h -- the source of the kernels of isa.h, included by one file per
// instruction set. All of it has internal linkage and none of it calls a function of another
// header: an inline function compiled here for AVX-512 could otherwise be the copy that the linker
// keeps for everybody (tools/check_isa_symbols.sh looks for that).
#include <cstdint>
#include <utility>
#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "minim/core/cpu/isa.h"

namespace minim {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64, kTileRows = 12;
#elif defined(__AVX2__)
constexpr int64_t kVectorBytes = 32, kTileRows = 6;
#else
constexpr int64_t kVectorBytes = 16, kTileRows = 6;
#endif
constexpr int64_t kTileVectors = 2;

template <class A, int64_t bytes = kVectorBytes>
struct VectorOf {
  typedef A type __attribute__((vector_size(bytes)));
  typedef A unaligned __attribute__((vector_size(bytes), aligned(alignof(A)), may_alias));
  static type load(const A* p) { return *reinterpret_cast<const unaligned*>(p); }
  static void store(A* p, type v) { *reinterpret_cast<unaligned*>(p) = v; }
};
template <class A>
using Vector = typename VectorOf<A>::type;
template <class A>
constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(A));
template <class A>
constexpr int64_t kTileCols = kTileVectors* kLanes<A>;

#if defined(__AVX512F__)
Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
  return _mm512_fmadd_ps(a, b, c);
}
Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
  return _mm512_fmadd_pd(a, b, c);
}
#elif defined(__FMA__)
Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
  return _mm256_fmadd_ps(a, b, c);
}
Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
  return _mm256_fmadd_pd(a, b, c);
}
#else
template <class V>
V multiply_add(V a, V b, V c) {
  return a * b + c;
}
#endif
template <class A>
Vector<A> broadcast(A x) {
  return x - Vector<A>{};
}

/// The steps, in elements, by which a tile walks through panels.
template <class A>
struct PanelSteps {
  static constexpr int64_t a_row = 1, a_k = kTileRows, b_k = kTileCols<A>;
};

/// R rows of kTileCols columns of c.
template <class A, int64_t R, class Steps>
void tile(Steps by, int64_t k, const A* a, const A* b, A* c, int64_t c_stride, bool add) {
  using V = VectorOf<A>;
  Vector<A> sum[R][kTileVectors];
#pragma GCC unroll 16
  for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kTileVectors; ++v)
      sum[i][v] = add ? V::load(c + i * c_stride + v * kLanes<A>) : Vector<A>{};
  for (int64_t n = 0; n < k; ++n, a += by.a_k, b += by.b_k) {
    Vector<A> b0 = V::load(b), b1 = V::load(b + kLanes<A>);
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i) {
      const Vector<A> x = broadcast(a[i * by.a_row]);
      sum[i][0] = multiply_add(x, b0, sum[i][0]);
      sum[i][1] = multiply_add(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kTileVectors; ++v)
      V::store(c + i * c_stride + v * kLanes<A>, sum[i][v]);
}

template <class A, class Steps, int64_t R = kTileRows>
void tile_of(int64_t rows, Steps by, int64_t k, const A* a, const A* b, A* c, int64_t c_stride,
             bool add) {
  if constexpr (R > 1)
    if (rows != R) return tile_of<A, Steps, R - 1>(rows, by, k, a, b, c, c_stride, add);
  tile<A, R>(by, k, a, b, c, c_stride, add);
}

/// A tile that reaches past the last column is computed beside c.
template <class A>
void narrow_tile(int64_t rows, int64_t cols, int64_t k, const A* a, const A* b, A* c,
                 int64_t c_stride, bool add) {
  A beside[kTileRows * kTileCols<A>] = {};
  for (int64_t i = 0; add && i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) beside[i * kTileCols<A> + j] = c[i * c_stride + j];
  tile_of<A>(rows, PanelSteps<A>{}, k, a, b, beside, kTileCols<A>, add);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = beside[i * kTileCols<A> + j];
}

template <class A>
void multiply(int64_t m, int64_t n, int64_t k, const A* a, const A* b, A* c, int64_t c_stride,
              bool add) {
  for (int64_t j = 0; j < n; j += kTileCols<A>)
    for (int64_t i = 0; i < m; i += kTileRows) {
      int64_t rows = m - i < kTileRows ? m - i : kTileRows;
      if (n - j >= kTileCols<A>)
        tile_of<A>(rows, PanelSteps<A>{}, k, a + i * k, b + j * k, c + i * c_stride + j, c_stride,
                   add);
      else
        narrow_tile<A>(rows, n - j, k, a + i * k, b + j * k, c + i * c_stride + j, c_stride, add);
    }
}

}  // namespace
}  // namespace minim

#include "minim/core/cpu/attention.inc.h"

namespace minim {
namespace {

/// Interleaves lines 0..3 by 4 x 4 blocks; returns how many elements of each are done.
int64_t transpose_four(const float* const* runs, int64_t n, int64_t width, float* panel) {
  using V = VectorOf<float, 16>;
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    auto r0 = V::load(runs[0] + k), r1 = V::load(runs[1] + k), r2 = V::load(runs[2] + k),
         r3 = V::load(runs[3] + k);
    auto low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5),
         high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    auto low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5),
         high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    float* p = panel + k * width;
    V::store(p, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
    V::store(p + width, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
    V::store(p + 2 * width, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
    V::store(p + 3 * width, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
  }
  return k;
}
int64_t transpose_four(const double* const*, int64_t, int64_t, double*) { return 0; }

template <class A>
void transpose(const A* const* runs, int64_t lines, int64_t n, int64_t width, A* panel) {
  int64_t line = 0;
  for (; line + 4 <= lines; line += 4)
    for (int64_t k = transpose_four(runs + line, n, width, panel + line); k < n; ++k)
      for (int64_t i = line; i < line + 4; ++i) panel[k * width + i] = runs[i][k];
  for (; line < lines; ++line)
    for (int64_t k = 0; k < n; ++k) panel[k * width + line] = runs[line][k];
  for (; line < width; ++line)
    for (int64_t k = 0; k < n; ++k) panel[k * width + line] = A(0);
}

template <class A, int64_t width>
void split_by(const A* run, int64_t n, A* panels, int64_t panel_stride) {
  for (; n >= width; n -= width, run += width, panels += panel_stride)
    __builtin_memcpy(panels, run, width * sizeof(A));
  for (int64_t i = 0; n > 0 && i < width; ++i) panels[i] = i < n ? run[i] : A(0);
}

template <class A>
void split(const A* run, int64_t n, int64_t width, A* panels, int64_t panel_stride) {
  if (width == kTileRows)
    split_by<A, kTileRows>(run, n, panels, panel_stride);
  else
    split_by<A, kTileCols<A>>(run, n, panels, panel_stride);
}

// The conversions are those of half.h with selects in place of branches, so that the loops
// vectorise.

void widen_f16(const uint16_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t h = from[i], x = (h & 0x7fffu) << 13, exponent = x & 0x0f800000u;
    uint32_t rebias = exponent == 0x0f800000u ? 224u << 23 : 112u << 23;
    float subnormal =
        __builtin_bit_cast(float, x + (113u << 23)) - __builtin_bit_cast(float, 113u << 23);
    uint32_t magnitude = exponent == 0 ? __builtin_bit_cast(uint32_t, subnormal) : x + rebias;
    to[i] = __builtin_bit_cast(float, magnitude | (h & 0x8000u) << 16);
  }
}

void widen_bf16(const uint16_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = __builtin_bit_cast(float, uint32_t(from[i]) << 16);
}

void narrow_f16(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = __builtin_bit_cast(uint32_t, from[i]), x = u & 0x7fffffffu;
    uint32_t normal = (x + 0xc8000fffu + ((x >> 13) & 1u)) >> 13;
    uint32_t subnormal =
        __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, x) + 0.5f) - 0x3f000000u;
    uint32_t h = x < 0x38800000u ? subnormal : normal;
    h = x >= 0x47800000u ? 0x7c00u : h;
    h = x > 0x7f800000u ? 0x7e00u | ((x >> 13) & 0x3ffu) : h;
    to[i] = uint16_t(h | ((u >> 16) & 0x8000u));
  }
}

void narrow_bf16(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = __builtin_bit_cast(uint32_t, from[i]);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    to[i] = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

template <class A>
constexpr GemmKernels<A> gemm_kernels() {
  return {kTileRows, kTileCols<A>, transpose<A>, split<A>, multiply<A>};
}
constexpr IsaKernels isa_kernels(int level, const char* name) {
  return {level,
          name,
          widen_f16,
          widen_bf16,
          narrow_f16,
          narrow_bf16,
          gemm_kernels<float>(),
          gemm_kernels<double>(),
          attention_kernels<float>(),
          attention_kernels<double>()};
}

}  // namespace
}  // namespace minim
