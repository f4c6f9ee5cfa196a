// core/cpu/tile.inc.h -- the multiplying part of a matrix product, for kernels.inc.h and
// pairs.inc.h, which include it and whose rules hold here too.
#include <cstdint>
#include <utility>
#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

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

/// How a tile multiplies and adds: a vector of panel elements each from a and b, onto the sums.
struct MultiplyAdd {
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

/// The steps, in elements, by which a tile walks through panels.
template <class A>
struct PanelSteps {
  static constexpr int64_t a_row = 1, a_k = kTileRows, b_k = kTileCols<A>;
};

/// R rows of kTileCols columns of c. @tparam P an element of a panel, as large as A
template <class A, int64_t R, class Mac, class Steps, class P>
void tile(Steps by, int64_t k, const P* a, const P* b, A* c, int64_t c_stride, bool add) {
  using V = VectorOf<A>;
  Vector<A> sum[R][kTileVectors];
#pragma GCC unroll 16
  for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kTileVectors; ++v)
      sum[i][v] = add ? V::load(c + i * c_stride + v * kLanes<A>) : Vector<A>{};
  for (int64_t n = 0; n < k; ++n, a += by.a_k, b += by.b_k) {
    Vector<P> b0 = VectorOf<P>::load(b), b1 = VectorOf<P>::load(b + kLanes<P>);
#pragma GCC unroll 16
    for (int64_t i = 0; i < R; ++i) {
      const Vector<P> x = broadcast(a[i * by.a_row]);
      sum[i][0] = Mac::of(x, b0, sum[i][0]);
      sum[i][1] = Mac::of(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kTileVectors; ++v)
      V::store(c + i * c_stride + v * kLanes<A>, sum[i][v]);
}

template <class A, class Mac, int64_t R = kTileRows, class Steps, class P>
void tile_of(int64_t rows, Steps by, int64_t k, const P* a, const P* b, A* c, int64_t c_stride,
             bool add) {
  if constexpr (R > 1)
    if (rows != R) return tile_of<A, Mac, R - 1>(rows, by, k, a, b, c, c_stride, add);
  tile<A, R, Mac>(by, k, a, b, c, c_stride, add);
}

/// A tile that reaches past the last column is computed beside c.
template <class A, class Mac, class P>
void narrow_tile(int64_t rows, int64_t cols, int64_t k, const P* a, const P* b, A* c,
                 int64_t c_stride, bool add) {
  A beside[kTileRows * kTileCols<A>] = {};
  for (int64_t i = 0; add && i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) beside[i * kTileCols<A> + j] = c[i * c_stride + j];
  tile_of<A, Mac>(rows, PanelSteps<A>{}, k, a, b, beside, kTileCols<A>, add);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] = beside[i * kTileCols<A> + j];
}

template <class A, class Mac, class P>
void multiply(int64_t m, int64_t n, int64_t k, const P* a, const P* b, A* c, int64_t c_stride,
              bool add) {
  for (int64_t j = 0; j < n; j += kTileCols<A>)
    for (int64_t i = 0; i < m; i += kTileRows) {
      int64_t rows = m - i < kTileRows ? m - i : kTileRows;
      if (n - j >= kTileCols<A>)
        tile_of<A, Mac>(rows, PanelSteps<A>{}, k, a + i * k, b + j * k, c + i * c_stride + j,
                        c_stride, add);
      else
        narrow_tile<A, Mac>(rows, n - j, k, a + i * k, b + j * k, c + i * c_stride + j, c_stride,
                            add);
    }
}

}  // namespace
}  // namespace minim
