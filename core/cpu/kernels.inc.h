// core/cpu/kernels.inc.h -- the source of the kernels of isa.h, included by one file per
// instruction set. All of it has internal linkage and none of it calls a function of another
// header: an inline function compiled here for AVX-512 could otherwise be the copy that the linker
// keeps for everybody (tools/check_isa_symbols.sh looks for that).
#include <cstdint>
#include <type_traits>
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

// The conversions are those of half.h with selects in place of branches, so that the loops
// vectorise.

float widen_f16(uint16_t from) {
  uint32_t h = from, x = (h & 0x7fffu) << 13, exponent = x & 0x0f800000u;
  uint32_t rebias = exponent == 0x0f800000u ? 224u << 23 : 112u << 23;
  float subnormal =
      __builtin_bit_cast(float, x + (113u << 23)) - __builtin_bit_cast(float, 113u << 23);
  uint32_t magnitude = exponent == 0 ? __builtin_bit_cast(uint32_t, subnormal) : x + rebias;
  return __builtin_bit_cast(float, magnitude | (h & 0x8000u) << 16);
}

void widen_f16(const uint16_t* from, float* to, int64_t n) {
#if defined(__AVX512F__)
  for (; n >= 32; n -= 32, from += 32, to += 32) {
    const __m512i h = _mm512_loadu_si512(from);
    if (_mm512_cmpgt_epi16_mask(h & _mm512_set1_epi16(0x7fff), _mm512_set1_epi16(0x7c00)))
      for (int64_t i = 0; i < 32; ++i) to[i] = widen_f16(from[i]);  // F16C would quiet a NaN
    else
      for (int64_t i = 0; i < 32; i += 16)
        _mm512_storeu_ps(
            to + i, _mm512_maskz_cvtph_ps(
                        0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + i))));
  }
#elif defined(__F16C__)
  for (; n >= 8; n -= 8, from += 8, to += 8) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
    const __m128i nan = _mm_cmpgt_epi16(h & _mm_set1_epi16(0x7fff), _mm_set1_epi16(0x7c00));
    if (_mm_testz_si128(nan, nan))
      _mm256_storeu_ps(to, _mm256_cvtph_ps(h));
    else  // F16C would quiet it
      for (int64_t i = 0; i < 8; ++i) to[i] = widen_f16(from[i]);
  }
#endif
  for (int64_t i = 0; i < n; ++i) to[i] = widen_f16(from[i]);
}

void widen_bf16(const uint16_t* __restrict from, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = __builtin_bit_cast(float, uint32_t(from[i]) << 16);
}

void narrow_f16(const float* from, uint16_t* to, int64_t n) {
#if defined(__AVX512F__)
  for (; n >= 16; n -= 16, from += 16, to += 16)
    _mm256_storeu_si256(
        reinterpret_cast<__m256i_u*>(to),
        _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  for (; n >= 8; n -= 8, from += 8, to += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
#endif
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

/// The upper halves of two vectors.
template <class V, int... l>
V upper_halves(V x, V y, std::integer_sequence<int, l...>) {
  return __builtin_shufflevector(x, y, (2 * l + 1)...);
}

void narrow_bf16(const float* __restrict from, uint16_t* __restrict to, int64_t n) {
#if defined(__AVX512BW__)  // of which GCC 12 makes twice as many instructions by itself
  const auto rounded = [](const float* p) {
    const auto u = VectorOf<uint32_t>::load(reinterpret_cast<const uint32_t*>(p));
    const auto number = Vector<float>(u);
    return Vector<uint16_t>(number != number ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u));
  };
  for (; n >= 32; n -= 32, from += 32, to += 32)
    VectorOf<uint16_t>::store(
        to, upper_halves(rounded(from), rounded(from + 16), std::make_integer_sequence<int, 32>{}));
#endif
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = __builtin_bit_cast(uint32_t, from[i]);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    to[i] = uint16_t((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

/// How an operand in 16 bits is stored.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

float widened(F16 x) { return widen_f16(x.bits); }
float widened(Bf16 x) { return __builtin_bit_cast(float, uint32_t(x.bits) << 16); }
template <class A>
A widened(A x) {
  return x;
}

/// `lanes` elements from p on, as A. F16C quiets a NaN, as the product would.
template <class A, int64_t lanes, class T>
auto load_as(const T* p) {
  using V = VectorOf<A, lanes * int64_t(sizeof(A))>;
  if constexpr (std::is_same_v<A, T>) {
    return V::load(p);
  } else {
    const auto h = VectorOf<uint16_t, lanes * 2>::load(reinterpret_cast<const uint16_t*>(p));
    if constexpr (std::is_same_v<T, Bf16>) {
#if defined(__AVX2__)
      if constexpr (lanes == 4)  // of which GCC 12 makes scalar code
        return typename V::type(_mm_slli_epi32(
            _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))), 16));
      else
#endif
      {
        using U = typename VectorOf<uint32_t, lanes * 4>::type;
        return __builtin_bit_cast(typename V::type, __builtin_convertvector(h, U) << 16);
      }
    } else {
#if defined(__AVX512F__)
      if constexpr (lanes == 16)
        return typename V::type(_mm512_maskz_cvtph_ps(0xffff, __builtin_bit_cast(__m256i, h)));
      else
#endif
#if defined(__F16C__)
          if constexpr (lanes == 8)
        return typename V::type(_mm256_cvtph_ps(__builtin_bit_cast(__m128i, h)));
      else if constexpr (lanes == 4)
        return
            typename V::type(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))));
      else
#endif
      {
        typename V::type v;
        for (int64_t i = 0; i < lanes; ++i) v[i] = widened(p[i]);
        return v;
      }
    }
  }
}

/// Exchanges, between two rows `by` apart of a square, the blocks of `by` lanes off its diagonal.
template <int by, class V, int... l>
void exchange(V& x, V& y, std::integer_sequence<int, l...>) {
  constexpr int n = sizeof...(l);
  const V low = __builtin_shufflevector(x, y, (l & by ? n + l - by : l)...);
  y = __builtin_shufflevector(x, y, (l & by ? n + l : l + by)...);
  x = low;
}

/// Transposes a square of vectors: log2(n) rounds of exchanges (Eklundh, 1972).
template <int by = 1, class V, int64_t n>
void transpose(V (&rows)[n]) {
  if constexpr (by < n) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i)
      if (!(i & by)) exchange<by>(rows[i], rows[i + by], std::make_integer_sequence<int, int(n)>{});
    transpose<2 * by>(rows);
  }
}

/// @tparam kWidth the width, where it is known
template <class A, int64_t kWidth, class T>
void interleave(const T* from, int64_t stride, int64_t lines, int64_t n, int64_t width, A* panel) {
  constexpr int64_t kSquareBytes = 16;  // larger ones are slower
  constexpr int64_t kSquare = kSquareBytes / int64_t(sizeof(A));
  using V = VectorOf<A, kSquareBytes>;
  if (kWidth > 0) width = kWidth;
  for (int64_t line = 0; line < width;
       line += kSquare, from += kSquare * stride, lines -= kSquare) {
    const int64_t room = width - line < kSquare ? width - line : kSquare;
    const bool fits = room == kSquare || room == kWidth % kSquare;
    int64_t k = 0;
    for (; fits && lines > 0 && k + kSquare <= n; k += kSquare) {
      typename V::type square[kSquare];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSquare; ++i)
        square[i] = i < lines ? load_as<A, kSquare>(from + i * stride + k) : typename V::type{};
      transpose(square);
      A* to = panel + k * width + line;
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSquare; ++i, to += width)
        if (room == kSquare)
          V::store(to, square[i]);
        else
          __builtin_memcpy(to, &square[i], (kWidth % kSquare) * sizeof(A));
    }
    for (; k < n; ++k)
      for (int64_t i = 0; i < room; ++i)
        panel[k * width + line + i] = i < lines ? A(widened(from[i * stride + k])) : A(0);
  }
}

/// Lines that lie side by side: of each k, `width` elements at a time go to a panel.
template <class A, int64_t width, class T>
void split(const T* from, int64_t k_stride, int64_t n, int64_t depth, A* panels) {
  constexpr int64_t lanes = width % kLanes<A> == 0 ? kLanes<A> : width % 4 == 0 ? 4 : 2;
  constexpr int64_t kTogether = 8;  // panels
  for (; n > 0;
       n -= kTogether * width, from += kTogether * width, panels += kTogether * width * depth)
    for (int64_t k = 0; k < depth; ++k) {
      const T* x = from + k * k_stride;
      A* to = panels + k * width;
      int64_t left = n < kTogether * width ? n : kTogether * width;
      for (; left >= width; left -= width, x += width, to += width * depth)
#pragma GCC unroll 16
        for (int64_t i = 0; i < width; i += lanes)
          VectorOf<A, lanes * int64_t(sizeof(A))>::store(to + i, load_as<A, lanes>(x + i));
      for (int64_t i = 0; left > 0 && i < width; ++i) to[i] = i < left ? A(widened(x[i])) : A(0);
    }
}

template <class A, int64_t width, class T>
void pack_by(const T* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth, A* panels) {
  constexpr int64_t kRun = 128;  // of such parts of a panel all lines meet in L1
  if (k_stride != 1) return split<A, width>(from, k_stride, n, depth, panels);
  for (; n > 0; n -= width, from += width * stride, panels += width * depth)
    for (int64_t k = 0; k < depth; k += kRun)
      interleave<A, width>(from + k, stride, n < width ? n : width,
                           depth - k < kRun ? depth - k : kRun, width, panels + k * width);
}

template <class A, class T, class Stored = T>
void pack(const Stored* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
          int64_t width, A* panels) {
  const T* typed = reinterpret_cast<const T*>(from);
  if (width == kTileRows)
    pack_by<A, kTileRows>(typed, stride, k_stride, n, depth, panels);
  else
    pack_by<A, kTileCols<A>>(typed, stride, k_stride, n, depth, panels);
}

template <class A>
constexpr GemmKernels<A> gemm_kernels() {
  return {kTileRows, kTileCols<A>, interleave<A, 0, A>, pack<A, A>, multiply<A>};
}
constexpr IsaKernels isa_kernels(int level, const char* name) {
  return {level,
          name,
          widen_f16,
          widen_bf16,
          narrow_f16,
          narrow_bf16,
          pack<float, F16, uint16_t>,
          pack<float, Bf16, uint16_t>,
          gemm_kernels<float>(),
          gemm_kernels<double>(),
          attention_kernels<float>(),
          attention_kernels<double>()};
}

}  // namespace
}  // namespace minim
