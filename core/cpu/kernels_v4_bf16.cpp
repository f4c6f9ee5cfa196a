// core/cpu/kernels_v4_bf16.cpp -- products of bf16 operands by pairs of k (see isa.h). Compiled for
// AVX-512 with BF16 under the rules of kernels.inc.h.
#include "minim/core/cpu/isa.h"
#include "minim/core/cpu/tile.inc.h"
// needs the tile
#include "minim/core/cpu/pack.inc.h"

namespace minim {
namespace {

/// By vcvtneps2bf16, which takes subnormals for 0: those go by whole numbers, and are told by them,
/// as they count for 0 elsewhere too where a program has them flushed.
void narrow_bf16(const float* from, uint16_t* to, int64_t n) {
  for (; n > 0; n -= 16, from += 16, to += 16) {
    const __mmask16 here = n >= 16 ? 0xffff : __mmask16((1u << n) - 1);
    const __m512 x = _mm512_maskz_loadu_ps(here, from);
    __m256i y = __m256i(_mm512_cvtneps_pbh(x));
    const auto u = __builtin_bit_cast(Vector<uint32_t>, x);
    const auto twice_less_1 = __builtin_bit_cast(__m512i, u + u - 1);  // of 0 the largest
    if (const __mmask16 subnormal =
            _mm512_cmplt_epu32_mask(twice_less_1, _mm512_set1_epi32(0xffffff))) {
      const auto rounded =
          __builtin_convertvector((u + 0x7fff + (u >> 16 & 1)) >> 16, VectorOf<uint16_t, 32>::type);
      y = _mm256_mask_blend_epi16(subnormal, y, __builtin_bit_cast(__m256i, rounded));
    }
    _mm256_mask_storeu_epi16(to, here, y);
  }
}

/// The instruction: fma of the high halves, then of the low ones, each rounded to nearest.
struct DotPairs {
  static constexpr int64_t kPer = 2;
  static void narrow(Stored<float>::As, const float* from, uint16_t* to, int64_t n) {
    narrow_bf16(from, to, n);
  }
  static Vector<float> of(Vector<uint32_t> a, Vector<uint32_t> b, Vector<float> c) {
    return _mm512_dpbf16_ps(c, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
};
struct WidenPairs : DotPairs {
  static Vector<float> widened(Vector<uint32_t> x) { return __builtin_bit_cast(Vector<float>, x); }
  static Vector<float> of(Vector<uint32_t> a, Vector<uint32_t> b, Vector<float> c) {
    constexpr uint32_t kHigh = 0xffff0000;
    c = multiply_add(widened(a & kHigh), widened(b & kHigh), c);
    return multiply_add(widened(a << 16), widened(b << 16), c);
  }
};

/// Pairs of lines, side by side along k or across lines. The second of the last pair may be
/// missing: for a row of a it is 0, for a column of b -0, as adding -0 changes no sum, of which -0
/// is one.
template <bool along_k>
struct Pairs {
  static constexpr bool kAlongK = along_k;
  const uint16_t* from;
  int64_t stride, depth;  ///< of elements
  uint32_t missing;

  const uint16_t* at(int64_t line, int64_t pair) const {
    return along_k ? from + line * stride + 2 * pair : from + 2 * pair * stride + line;
  }
  int64_t whole() const { return depth / 2; }
  uint32_t one(int64_t line, int64_t pair) const {
    const uint16_t* first = at(line, pair);
    const uint32_t low = 2 * pair + 1 < depth ? first[along_k ? 1 : stride] : missing;
    return uint32_t(*first) << 16 | low;
  }
  /// Along k: of `lanes` pairs.
  template <int64_t lanes>
  static auto load(const uint16_t* first) {
    using V = typename VectorOf<uint32_t, 4 * lanes>::type;
    const V x = __builtin_bit_cast(V, VectorOf<uint16_t, 4 * lanes>::load(first));
    return x << 16 | x >> 16;
  }
  template <int64_t lanes>
  auto many(int64_t line, int64_t pair) const {
    using V = typename VectorOf<uint32_t, 4 * lanes>::type;
    auto load = [](const uint16_t* p) -> V {
      if constexpr (lanes == 4)  // of which GCC 12 makes scalar code
        return V(_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))));
      else
        return __builtin_convertvector(VectorOf<uint16_t, 2 * lanes>::load(p), V);
    };
    const uint16_t* first = at(line, pair);
    return load(first) << 16 | (2 * pair + 1 < depth ? load(first + stride) : V{} + missing);
  }
};

uint32_t least_magnitude(const uint32_t* panels, int64_t n) {
  typedef uint16_t Half __attribute__((vector_size(kVectorBytes)));
  Half least = ~Half{};
  auto take = [&](Vector<uint32_t> pairs) {
    const Half x = (__builtin_bit_cast(Half, pairs) & 0x7fff) - 1;  // 0 becomes the largest
    least = x < least ? x : least;
  };
  for (; n >= kLanes<uint32_t>; n -= kLanes<uint32_t>, panels += kLanes<uint32_t>)
    take(VectorOf<uint32_t>::load(panels));
  for (; n > 0; --n) take(broadcast(*panels++));
  uint16_t result = 0xffff;
  for (int64_t l = 0; l < kLanes<uint16_t>; ++l) result = least[l] < result ? least[l] : result;
  return result + 1u;
}

uint32_t pack(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
              int64_t width, uint32_t* panels) {
  const int64_t pairs = (depth + 1) / 2;
  const uint32_t missing = width == kTileRows ? 0 : 0x8000;
  if (k_stride == 1)
    pack_from(Pairs<true>{from, stride, depth, missing}, n, pairs, width, panels);
  else
    pack_from(Pairs<false>{from, k_stride, depth, missing}, n, pairs, width, panels);
  return least_magnitude(panels, (n + width - 1) / width * width * pairs);
}

}  // namespace

extern const PairKernels kernels_v4_bf16;
constinit const PairKernels kernels_v4_bf16 = {pack, multiply<float, DotPairs, uint32_t>,
                                               multiply<float, WidenPairs, uint32_t>};

}  // namespace minim
