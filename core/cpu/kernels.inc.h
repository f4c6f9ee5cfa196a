// core/cpu/kernels.inc.h -- the source of the kernels of isa.h, included by one file per
// instruction set. All of it has internal linkage and none of it calls a function of another
// header: an inline function compiled here for AVX-512 could otherwise be the copy that the linker
// keeps for everybody (tools/check_isa_symbols.sh looks for that).
#include <type_traits>

#include "minim/core/cpu/isa.h"
#include "minim/core/cpu/tile.inc.h"
// needs the tile
#include "minim/core/cpu/pack.inc.h"

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

void MultiplyAdd::narrow(Stored<float>::As as, const float* from, uint16_t* to, int64_t n) {
  as == Stored<float>::f16 ? narrow_f16(from, to, n) : narrow_bf16(from, to, n);
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

/// Elements of lines, side by side along k or across lines.
template <class A, class T, bool along_k>
struct Elements {
  static constexpr bool kAlongK = along_k;
  const T* from;
  int64_t stride;  ///< from line to line, or from k to k

  const T* at(int64_t line, int64_t k) const {
    return along_k ? from + line * stride + k : from + k * stride + line;
  }
  int64_t whole() const { return INT64_MAX; }
  A one(int64_t line, int64_t k) const { return A(widened(*at(line, k))); }
  template <int64_t lanes>
  static auto load(const T* p) {
    return load_as<A, lanes>(p);
  }
  template <int64_t lanes>
  auto many(int64_t line, int64_t k) const {
    return load<lanes>(at(line, k));
  }
};

template <class A>
void interleave_runs(const A* runs, int64_t stride, int64_t lines, int64_t n, int64_t width,
                     A* panel) {
  interleave(Elements<A, A, true>{runs, stride}, 0, lines, 0, n, width, panel);
}

template <class A, class T, class Stored = T>
void pack(const Stored* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
          int64_t width, A* panels) {
  const T* typed = reinterpret_cast<const T*>(from);
  if (k_stride == 1)
    pack_from(Elements<A, T, true>{typed, stride}, n, depth, width, panels);
  else
    pack_from(Elements<A, T, false>{typed, k_stride}, n, depth, width, panels);
}

template <class A>
void multiply_rows(int64_t m, int64_t n, int64_t k, const A* a, int64_t a_row, int64_t a_k,
                   const A* b, const Stored<A>& to) {
  multiply_by<A, MultiplyAdd>(RowSteps<A>{a_row, a_k}, a_row, m, n, k, a, b, to);
}

/// The steps of operands that lie in memory row by row.
struct StridedSteps {
  int64_t a_row, a_k, b_k;
};

template <class A>
void multiply_unpacked(int64_t m, int64_t n, int64_t k, const A* a, int64_t a_row, int64_t a_k,
                       const A* b, int64_t b_row, const Stored<A>& to) {
  const StridedSteps by{a_row, a_k, b_row};
  for (int64_t j = 0; j < n; j += kTileCols<A>)
    for (int64_t i = 0; i < m; i += kTileRows)
      tile_of<A, MultiplyAdd>(m - i < kTileRows ? m - i : kTileRows, by, k, a + i * a_row, b + j,
                              to, i, j);
}

}  // namespace
}  // namespace minim
#include "minim/core/cpu/attention.inc.h"  // needs the conversions

namespace minim {
namespace {

template <class A>
constexpr GemmKernels<A> gemm_kernels() {
  return {kTileRows,
          kTileCols<A>,
          interleave_runs<A>,
          pack<A, A>,
          multiply<A, MultiplyAdd, A>,
          multiply_rows<A>,
          multiply_unpacked<A>};
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
