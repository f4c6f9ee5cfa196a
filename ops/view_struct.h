// ops/view_struct.h -- the base of view ops: the gradient of a view is the same view of the
// gradient.
#pragma once
#include "minim/core/convert.h"
#include "minim/ops/contract.h"

namespace minim::op {

template <class Derived>
struct ViewOf : View {
  static constexpr Spec spec{.operands = {{"x"}}, .integers = true};
  static void backward(OpArgs& args) {
    const Arg& d = args.grad_in[0];
    if (d.shape.numel() != args.grad_out[0].shape.numel()) fill_zero(d);
    OpArgs same(1, 1);
    same.in[0] = d;
    same.attrs = args.attrs;
    Index offset = Derived::view(same);
    Arg part = same.out[0];
    part.data = advance(d.data, d.dtype, offset);
    part.dtype = d.dtype;
    copy(args.grad_out[0], part);
  }
};

}  // namespace minim::op
