// ops/class_loss_struct.h -- what losses of class numbers share: scores (..., C) and integer
// targets (...), of which those equal to ignore_index count neither in the sum nor in the mean.
#pragma once
#include "minim/core/sum.h"
#include "minim/core/warn.h"
#include "minim/core/wide.h"
#include "minim/ops/indices.h"
#include "minim/ops/loss_struct.h"
#include "minim/ops/matrix.h"

namespace minim::op {

/// Sets the loss's shape. @throws Error where the shapes do not fit.
inline void infer_class_loss(OpArgs& args, Reduction reduction, const char* op,
                             const char* scores) {
  const Shape &x = args.in[0].shape, &target = args.in[1].shape;
  if (x.rank() == 0 || !(leading(x, 1) == target))
    fail("[", op, "] target ", target, " does not fit ", scores, " ", x, ": ", scores,
         " are (..., classes), target (...)");
  if (reduction == Reduction::batchmean)
    fail("[", op, "] batchmean is for losses that compare two tensors; use mean or sum");
  args.out[0].shape = reduction == Reduction::none ? target : Shape{};
}

/// The losses of the positions, 0 where ignored; the mean over none is 0, which is told.
template <class A>
void store_class_loss(const Arg& out, Reduction reduction, const A* losses, Index n, Index valid,
                      const char* op) {
  if (n > 0 && valid == 0)
    warn("[", op, "] all ", n, " targets are ignore_index: the loss and its gradient are 0");
  if (reduction == Reduction::none) return store_run(out.data, out.dtype, 1, n, losses);
  const A by = reduction == Reduction::mean ? A(std::max<Index>(1, valid)) : A(1);
  A total = sum16<A>(n, [&](Index r) { return losses[r]; }) / by;
  if (!is_finite(total)) {  // the mean may fit where the sum does not
    using W = Wider<A>;
    total = A(sum16<W>(n, [&](Index r) { return W(losses[r]); }) / W(by));
  }
  store_run(out.data, out.dtype, 1, 1, &total);
}

/// The gradient that reaches the loss of position r.
template <class A>
A class_loss_slope(const Arg& g, Reduction reduction, Index r, A valid) {
  A buffer;
  const Index at = offset_of(reduction == Reduction::none ? r : 0, g.shape, g.strides);
  const A slope = *load_run(advance(g.data, g.dtype, at), g.dtype, 1, 1, &buffer);
  return reduction == Reduction::mean ? slope / std::max(A(1), valid) : slope;
}

}  // namespace minim::op
