// ops/einsum.h -- Einstein's summation convention, as a composite: the axes of each operand are
// named by letters, and what the result does not name is summed over.
#pragma once
#include <initializer_list>
#include <span>
#include <string_view>

#include "minim/core/tensor.h"

namespace minim {

/// einsum("bij,bjk->bik", {x, y}): subscripts are letters, one per axis; `...` stands for the axes
/// that are not named, aligned at the last one; blanks are skipped. A letter twice in an operand is
/// its diagonal. Axes of size 1 broadcast. Without `->` the result has the letters that occur once,
/// in alphabetical order, after those of `...`. Operands are taken from left to right, two by two
/// as one matmul (whose row says the dtype); sums over one operand alone are `sum`'s.
/// @throws Error naming the equation and the position in it.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands);

}  // namespace minim
