// Two tensors, one after the other along an axis; the widest dtype wins. For any number of tensors:
// ops/composite.h.
// @throws Error naming both shapes where other sizes differ.
#pragma once
#include "minim/core/convert.h"
#include "minim/ops/contract.h"

namespace minim::op {

struct Cat : Structured {
  struct Attrs {
    Index axis = 0;
  };
  static int axis_of(const OpArgs& args) {
    return normalize_axis(args.attrs.as<Attrs>().axis, args.in[0].shape.rank(), "cat");
  }
  /// The part of the whole that operand k fills.
  static Arg part(const OpArgs& args, Arg whole, int k) {
    const int axis = axis_of(args);
    if (k == 1)
      whole.data = advance(whole.data, whole.dtype, args.in[0].shape[axis] * whole.strides[axis]);
    whole.shape = args.in[k].shape;
    return whole;
  }
  static void infer(OpArgs& args) {
    const Shape &x = args.in[0].shape, &y = args.in[1].shape;
    if (x.rank() == 0 || y.rank() != x.rank())
      fail("[cat] shapes ", x, " and ", y,
           " cannot be joined: they need the same number of axes, at least one");
    const int axis = axis_of(args);
    for (int i = 0; i < x.rank(); ++i)
      if (i != axis && x[i] != y[i])
        fail("[cat] shapes ", x, " and ", y, " cannot be joined along axis ", axis, ": sizes ",
             x[i], " and ", y[i], " of axis ", i, " differ");
    args.out[0].shape = x;
    args.out[0].shape[axis] += y[axis];
  }
  static constexpr Spec spec{.operands = {{"x"}, {"y"}}, .integers = true, .infer = infer};
  static void forward(OpArgs& args) {
    for (int k = 0; k < 2; ++k) copy(args.in[k], part(args, args.out[0], k));
  }
  static void backward(OpArgs& args) {
    for (int k = 0; k < 2; ++k)
      if (args.grad_in[k].data) copy(part(args, args.grad_out[0], k), args.grad_in[k]);
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    all.add({{3}, {4}});
    all.add({{2, 3}, {4, 3}});
    all.add({{2, 3}, {2, 1}}, {.axis = -1});
    all.add({{2, 3, 4}, {2, 5, 4}}, {.axis = 1});
    all.add({{0, 3}, {2, 3}});
    return all;
  }
};

}  // namespace minim::op
