// core/cpu/tile.inc.h -- the multiplying part of a matrix product, for kernels.inc.h and
// kernels_v4_bf16.cpp, which include it; the former's rules hold here too.
#include <cstdint>
#include <utility>
#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "minim/core/gemm.h"

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

/// How a tile multiplies and adds: a vector of panel elements each from a and b, onto the sums; and
/// how n sums are rounded.
struct MultiplyAdd {
  static constexpr int64_t kPer = 1;  ///< numbers of a line in a panel element
  static void narrow(Stored<float>::As as, const float* from, uint16_t* to, int64_t n);
  template <class V>
  static V of(V a, V b, V c) {
#if defined(__AVX512F__)
    if constexpr (sizeof(a[0]) == 4)
      return _mm512_fmadd_ps(a, b, c);
    else
      return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
    if constexpr (sizeof(a[0]) == 4)
      return _mm256_fmadd_ps(a, b, c);
    else
      return _mm256_fmadd_pd(a, b, c);
#else
    return a * b + c;
#endif
  }
};
template <class V>
V multiply_add(V a, V b, V c) {
  return MultiplyAdd::of(a, b, c);
}
template <class A>
Vector<A> broadcast(A x) {
  return x - Vector<A>{};
}

/// The steps, in elements, by which a tile walks through its operands.
template <class A>
struct PanelSteps {
  static constexpr int64_t a_row = 1, a_k = kTileRows, b_k = kTileCols<A>;
};
template <class A>
struct RowSteps {
  int64_t a_row, a_k;
  static constexpr int64_t b_k = kTileCols<A>;
};

/// n sums of a row, as they are or rounded. @param at where in c
template <class Mac, class A>
void store_row(const Stored<A>& to, int64_t at, const A* sums, int64_t n) {
  if constexpr (sizeof(A) == sizeof(float))
    if (to.as != to.sums) return Mac::narrow(to.as, sums, static_cast<uint16_t*>(to.c) + at, n);
  for (int64_t j = 0; j < n; ++j) (static_cast<A*>(to.c) + at)[j] = sums[j];
}

/// R rows of kTileCols columns of c, from (i, j) on: block after block of k, each a chain of
/// multiply-adds from 0, which is added to the sums so far. @tparam P an element of a panel, as
/// large as A
template <class A, int64_t R, class Mac, class Steps, class P>
void tile(Steps by, int64_t k, const P* a, const P* b, const Stored<A>& to, int64_t i0, int64_t j) {
  using V = VectorOf<A>;
  constexpr int64_t kL = kLanes<A>, kBlock = kProductBlock / Mac::kPer;
  const int64_t at = i0 * to.stride + j;
  Vector<A> sum[R][kTileVectors];
  alignas(kVectorBytes) A beside[R * kTileCols<A>];
  const A* so_far = to.add ? static_cast<const A*>(to.c) + at : nullptr;
  for (int64_t stride = to.stride;; k -= kBlock) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v) sum[i][v] = Vector<A>{};
    const int64_t end = k < kBlock ? k : kBlock;
#pragma GCC unroll 2  // 3 to 5 % faster; by 4 no more
    for (int64_t n = 0; n < end; ++n, a += by.a_k, b += by.b_k) {
      Vector<P> b0 = VectorOf<P>::load(b), b1 = VectorOf<P>::load(b + kL);
#pragma GCC unroll 16
      for (int64_t i = 0; i < R; ++i) {
        const Vector<P> x = broadcast(a[i * by.a_row]);
        sum[i][0] = Mac::of(x, b0, sum[i][0]);
        sum[i][1] = Mac::of(x, b1, sum[i][1]);
      }
    }
    if (so_far)
#pragma GCC unroll 16
      for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
        for (int64_t v = 0; v < kTileVectors; ++v)
          sum[i][v] += V::load(so_far + i * stride + v * kL);
    if (k <= kBlock) break;
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v)
        V::store(beside + i * kTileCols<A> + v * kL, sum[i][v]);
    so_far = beside, stride = kTileCols<A>;
  }
  if (to.bias)
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v) sum[i][v] += V::load(to.bias + j + v * kL);
  if (to.as == to.sums) {
    A* c = static_cast<A*>(to.c) + at;
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i, c += to.stride)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v) V::store(c + v * kL, sum[i][v]);
#if defined(__AVX512F__)
  } else if (sizeof(A) == sizeof(float) && to.as == to.f16) {  // in registers
    uint16_t* c = static_cast<uint16_t*>(to.c) + at;
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i, c += to.stride)
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v)
        _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(c + v * kL),
                            _mm512_maskz_cvtps_ph(0xffff, __builtin_bit_cast(__m512, sum[i][v]),
                                                  _MM_FROUND_TO_NEAREST_INT));
#endif
  } else {
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i) {
      alignas(kVectorBytes) A row[kTileCols<A>];
#pragma GCC unroll 2
      for (int64_t v = 0; v < kTileVectors; ++v) V::store(row + v * kL, sum[i][v]);
      store_row<Mac>(to, at + i * to.stride, row, kTileCols<A>);
    }
  }
}

template <class A, class Mac, int64_t R = kTileRows, class Steps, class P>
void tile_of(int64_t rows, Steps by, int64_t k, const P* a, const P* b, const Stored<A>& to,
             int64_t i, int64_t j) {
  if constexpr (R > 1)
    if (rows != R) return tile_of<A, Mac, R - 1>(rows, by, k, a, b, to, i, j);
  tile<A, R, Mac>(by, k, a, b, to, i, j);
}

/// A tile that reaches past the last column is computed beside c.
template <class A, class Mac, class Steps, class P>
void narrow_tile(Steps by, int64_t rows, int64_t cols, int64_t k, const P* a, const P* b,
                 const Stored<A>& to, int64_t i0, int64_t j0) {
  A beside[kTileRows * kTileCols<A>] = {};
  const Stored<A> there{beside, kTileCols<A>, to.add};
  const int64_t at = i0 * to.stride + j0;
  for (int64_t i = 0; to.add && i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      beside[i * there.stride + j] = static_cast<const A*>(to.c)[at + i * to.stride + j];
  tile_of<A, Mac>(rows, by, k, a, b, there, 0, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; to.bias && j < cols; ++j) beside[i * there.stride + j] += to.bias[j0 + j];
    store_row<Mac>(to, at + i * to.stride, beside + i * there.stride, cols);
  }
}

/// @param a_tile from the first row of a tile to that of the next, per row
template <class A, class Mac, class Steps, class P>
void multiply_by(Steps by, int64_t a_tile, int64_t m, int64_t n, int64_t k, const P* a, const P* b,
                 const Stored<A>& to) {
  for (int64_t j = 0; j < n; j += kTileCols<A>)
    for (int64_t i = 0; i < m; i += kTileRows) {
      int64_t rows = m - i < kTileRows ? m - i : kTileRows;
      if (n - j >= kTileCols<A>)
        tile_of<A, Mac>(rows, by, k, a + i * a_tile, b + j * k, to, i, j);
      else
        narrow_tile<A, Mac>(by, rows, n - j, k, a + i * a_tile, b + j * k, to, i, j);
    }
}

template <class A, class Mac, class P>
void multiply(int64_t m, int64_t n, int64_t k, const P* a, const P* b, const Stored<A>& to) {
  multiply_by<A, Mac>(PanelSteps<A>{}, k, m, n, k, a, b, to);
}

}  // namespace
}  // namespace minim
