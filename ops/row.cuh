// ops/row.cuh -- the CUDA kernels of a pointwise or rowwise row, which ops/row.h only declares: one
// CUDA source per row instantiates them.
#pragma once
#include "minim/core/loops.cuh"
#include "minim/core/rowwise.cuh"
#include "minim/ops/row.h"

namespace minim::cuda {

template <class Op>
void forward(OpArgs& args) {
  if constexpr (detail::is_kind<Op, op::Rowwise>)
    cpu::by_compute<RowwiseForward, Op>(args);
  else if constexpr (detail::is_kind<Op, op::Pointwise>)
    cpu::by_compute<PointwiseForward, Op>(args);
}

template <class Op>
void backward(OpArgs& args) {
  if constexpr (!Op::spec.differentiable)
    return;
  else if constexpr (detail::is_kind<Op, op::Rowwise>)
    cpu::by_compute<RowwiseBackward, Op>(args);
  else if constexpr (detail::is_kind<Op, op::Pointwise>)
    cpu::by_compute<PointwiseBackward, Op>(args);
}

}  // namespace minim::cuda
