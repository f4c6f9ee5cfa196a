// ops/attention_room.h -- what the tiles of attention_fused.cpp are made of: kernels by dtype, and
// scratch memory.
#pragma once
#include <optional>
#include <type_traits>
#include <utility>

#include "minim/core/cpu/isa.h"
#include "minim/ops/matrix.h"

namespace minim::op {

constexpr Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

template <class A>
const auto& gemm_kernels() {
  if constexpr (std::is_same_v<A, float>)
    return isa().f32;
  else
    return isa().f64;
}
template <class A>
const auto& attention_kernels() {
  if constexpr (std::is_same_v<A, float>)
    return isa().attention32;
  else
    return isa().attention64;
}

/// How the rows of a matrix are stored, if a kernel loads and stores all of them in one call.
template <class A>
std::optional<typename Stored<A>::As> rows_of(const MatrixRef& m) {
  if (m.col_stride != 1) return {};
  if (m.dtype == dtype_for<A>()) return Stored<A>::sums;
  if (std::is_same_v<A, double> || !is_half(m.dtype)) return {};
  return m.dtype == DType::f16 ? Stored<A>::f16 : Stored<A>::bf16;
}

/// A matrix in scratch memory, or an operand.
template <class A>
struct Grid {
  A* data;
  Index stride;
  A* operator[](Index i) const { return data + i * stride; }
};

/// Scratch memory, handed out in parts that begin at cache lines.
template <class A>
class Room {
 public:
  explicit Room(Index n) : all_(size_t(n)), next_(all_.data()) {}
  /// @param stride a multiple of 16
  Grid<A> grid(Index rows, Index stride) {
    return {std::exchange(next_, next_ + rows * stride), stride};
  }
  A* numbers(Index n) { return grid(1, round_up(n, 16)).data; }

 private:
  Scratch<A> all_;
  A* next_;
};

}  // namespace minim::op
