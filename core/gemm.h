// core/gemm.h -- matrix products of f16, bf16, f32 and f64 operands in any mix and any layout.
// Products of 16-bit and f32 operands are summed in fp32, those with any f64 matrix or bias in f64,
// and the result is rounded once, when it is stored.
//
// How every implementation sums over k: k is cut into blocks of kProductBlock, each one chain of
// multiply-adds from 0 in order of k. Up to kProductFan sums of blocks are added in order to the
// sum of a run, up to kProductFan of those to that of a longer run, and so on until one is left;
// then come alpha, the bias and c. So an error grows with chains of 256 and of 16, not with k, and
// no bit depends on threads, on tiles, on packing or on where k is cut: work in progress ends where
// a block does. (Bits depend on the ISA: with fma each step rounds once.)
//
// Packing and register tiles follow Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (2008).
#pragma once
#include <cstdint>
#include <span>

#include "minim/core/dtype.h"

namespace minim {

inline constexpr int64_t kProductBlock = 256;  ///< of k: the length of a chain of multiply-adds
inline constexpr int64_t kProductFan = 16;  ///< sums that are added to make one of the next level

/// Element (i, j) is at data + i * row_stride + j * col_stride, in elements; strides may be 0 or
/// negative.
struct MatrixRef {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0, col_stride = 1;
};

/// c = alpha a b + bias (+ c). a is m x k, b is k x n, c is m x n and overlaps none of the others.
struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  MatrixRef a, b;
  void* c = nullptr;
  DType c_dtype = DType::f32;
  int64_t c_row_stride = 0;    ///< in elements; columns are dense
  const void* bias = nullptr;  ///< null, or n dense elements added to every row
  DType bias_dtype = DType::f32;
  double alpha = 1;
  bool accumulate = false;  ///< add what c holds
};

/// Runs on the thread pool. k = 0 gives the bias, or zeros.
/// @throws Error when a dtype is not floating, a size is negative or an operand that is needed is
/// null.
void gemm(const GemmArgs& args);

/// Independent products, in parallel over them and within them. @throws Error as gemm does.
void gemm_batched(std::span<const GemmArgs> batch);

/// The same by a plain loop that sums in f64 and rounds once: the oracle for every other
/// implementation.
void gemm_reference(const GemmArgs& args);

}  // namespace minim
