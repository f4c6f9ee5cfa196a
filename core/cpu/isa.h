// core/cpu/isa.h -- the few kernels that are compiled once per instruction set (see kernels.inc.h)
// and picked at run time. Everything else is built for baseline x86-64 and calls them through this
// table.
#pragma once
#include <cstdint>

namespace minim {

/// Where the sums of a product go; A is float or double. Rows of c are `stride` elements apart.
template <class A>
struct Stored {
  enum As { sums, f16, bf16 };
  void* c;
  int64_t stride;
  bool add;                 ///< onto the sums that c holds
  As as = sums;             ///< f16 and bf16: rounded once
  const A* bias = nullptr;  ///< null, or what is added to each row when its sums are complete
};

/// The part of a matrix product that depends on the vector width; A is float or double. An operand
/// is packed as panels of `rows` rows (left) or `cols` columns (right); a panel holds its lines
/// interleaved: panel[k * width + line].
template <class A>
struct GemmKernels {
  int64_t rows, cols;  ///< the tile of the result that is kept in registers
  /// Packs `lines` runs of n elements, `stride` elements apart, into one panel, interleaved; the
  /// missing lines up to `width` become 0.
  void (*transpose)(const A* runs, int64_t stride, int64_t lines, int64_t n, int64_t width,
                    A* panel);
  /// Packs n lines of `depth` elements, which are line * stride + k * k_stride elements from
  /// `from`, into panels of width lines, rows or cols. One of the strides is 1.
  void (*pack)(const A* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
               int64_t width, A* panels);
  /// c = a b, m x n, by the rule of gemm.h for up to kProductFan blocks, each a chain of (fused,
  /// where there is fma) multiply-adds; where sums are added to those of c, they go on from there.
  void (*multiply)(int64_t m, int64_t n, int64_t k, const A* a, const A* b, const Stored<A>& to);
  /// The same with a as it is: a[i * a_row + k * a_k].
  void (*multiply_rows)(int64_t m, int64_t n, int64_t k, const A* a, int64_t a_row, int64_t a_k,
                        const A* b, const Stored<A>& to);
  /// The same with both as they are: a[i * a_row + k * a_k], b[k * b_row + j]. n is a multiple of
  /// cols.
  void (*multiply_unpacked)(int64_t m, int64_t n, int64_t k, const A* a, int64_t a_row, int64_t a_k,
                            const A* b, int64_t b_row, const Stored<A>& to);
};

/// A product of bf16 operands summed in fp32 by vdpbf16ps, which multiplies two pairs at once. A
/// panel element is a pair of k: the first in the high half, which the instruction adds first, so
/// that each chain of multiply-adds, and every bit, is that of GemmKernels<float>. It takes
/// subnormals for 0, though: so `pack` reports how small the operands get, and where that could
/// matter, `multiply_widened` does the same with two fp32 multiply-adds.
struct PairKernels {
  /// Packs as GemmKernels::pack does; depth is in elements, and an odd one ends in a pair with
  /// 0, or -0 in panels of `cols`: their product changes no sum.
  /// @returns the bits, without sign, of the smallest magnitude that is not 0; 2^16 if all are
  uint32_t (*pack)(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
                   int64_t width, uint32_t* panels);
  /// As GemmKernels::multiply, but not stored as f16; k counts pairs.
  void (*multiply)(int64_t m, int64_t n, int64_t k, const uint32_t* a, const uint32_t* b,
                   const Stored<float>& to);
  void (*multiply_widened)(int64_t m, int64_t n, int64_t k, const uint32_t* a, const uint32_t* b,
                           const Stored<float>& to);
};

/// What attention does with a tile of scores, rows `stride` apart; A is float or double. Of row i
/// the first min(n, first + i) numbers count, and as many after them as a tile of the products has
/// rows become 0. Rows are worked on, and may be overwritten, up to the next multiple of 16 numbers
/// after n, and numbers per row up to a multiple of 16, but for `mean`.
template <class A>
struct AttentionKernels {
  /// A step of the online softmax (Milakov and Gimelshein, 2018) of x = scale * s: `max` becomes
  /// the row's largest x so far, s = e^(x - max), sum = sum * shrink + what was added, where shrink
  /// is e^(the old max - max). -infinity counts for nothing, also in a row that has only that.
  void (*softmax)(int64_t rows, int64_t n, int64_t first, A scale, A* s, int64_t stride, A* max,
                  A* sum, A* shrink);
  /// s = e^(scale * s - max) / sum, by row.
  void (*probabilities)(int64_t rows, int64_t n, int64_t first, A scale, A* s, int64_t stride,
                        const A* max, const A* sum);
  /// mean[i] += the sum of p d over row i; where p is 0, d does not matter.
  void (*weigh)(int64_t rows, int64_t n, int64_t first, const A* p, const A* d, int64_t stride,
                A* mean);
  /// d = p (d - mean), by row; where p is 0, d does not matter.
  void (*center)(int64_t rows, int64_t n, int64_t first, const A* p, A* d, int64_t stride,
                 const A* mean);
  /// Rows of `width` numbers, `step` apart and stored so, followed by zeros up to `stride`.
  void (*load)(int64_t rows, int64_t width, const void* from, int64_t step,
               typename Stored<A>::As as, A* to, int64_t stride);
  /// Stores x[i][j] * by[i * step], or x[i][j] / by[i * step]; x may become that too.
  using Store = void (*)(int64_t rows, int64_t width, A* x, int64_t stride, const A* by,
                         int64_t step, const Stored<A>& to);
  Store store_product, store_quotient;
};

struct IsaKernels {
  int level;  ///< 0, 1, 2: the vectors of per_isa.h
  /// "base", "v3", "v4": x86-64, x86-64-v3 (AVX2, FMA), x86-64-v4 (AVX-512); "v4-bf16": with pairs
  const char* name;
  /// The same bits as f16 and bf16 of half.h, whatever the ISA.
  void (*widen_f16)(const uint16_t* from, float* to, int64_t n);
  void (*widen_bf16)(const uint16_t* from, float* to, int64_t n);
  void (*narrow_f16)(const float* from, uint16_t* to, int64_t n);
  void (*narrow_bf16)(const float* from, uint16_t* to, int64_t n);
  /// GemmKernels<float>::pack of operands in 16 bits.
  void (*pack_f16)(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t n, int64_t depth,
                   int64_t width, float* panels);
  void (*pack_bf16)(const uint16_t* from, int64_t stride, int64_t k_stride, int64_t n,
                    int64_t depth, int64_t width, float* panels);
  GemmKernels<float> f32;
  GemmKernels<double> f64;
  AttentionKernels<float> attention32;
  AttentionKernels<double> attention64;
  const PairKernels* pairs = nullptr;  ///< null where there is no vdpbf16ps
};

/// The best this CPU has, or what the environment variable MINIM_ISA names; chosen at the first
/// call. Of v4 and v4-bf16, whose bits are the same, the best is the one that takes less time here:
/// some CPUs issue vdpbf16ps at a quarter of the rate of multiply-adds, some at the same.
/// @throws Error when MINIM_ISA names no ISA or one that the CPU lacks.
const IsaKernels& isa();

inline constexpr int kIsas = 4;
/// Of the ISAs from the least to the best, the index-th; null if the CPU lacks it.
const IsaKernels* isa_at(int index);

}  // namespace minim
