#include "minim/ops/mean.h"

namespace minim::op {
namespace {

uint32_t mask_of(const OpArgs& args) {
  return axis_mask(args.attrs.as<Axes>().axes, args.in[0].shape.rank(), "mean");
}

template <class A>
void divide(const Scratch<A>& values, Index n, Index by) {
  for (Index i = 0; i < n; ++i) values[size_t(i)] /= A(by);
}

template <class A>
void forward_as(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  const Arg& out = args.out[0];
  const uint32_t mask = mask_of(args);
  const Index n = out.shape.numel();
  Scratch<A> sums(static_cast<size_t>(n));
  Arg wide{sums.data(), dtype_for<A>(), out.shape, contiguous_strides(out.shape), true};
  sum_to(args.in[0], keep_axes(wide, x, mask));
  divide(sums, n, reduced_count(x, mask));
  copy(wide, out);
}

template <class A>
void backward_as(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  const Arg& g = args.grad_out[0];
  const uint32_t mask = mask_of(args);
  const Index n = g.shape.numel();
  Scratch<A> parts(static_cast<size_t>(n));
  Arg wide{parts.data(), dtype_for<A>(), g.shape, contiguous_strides(g.shape), true};
  copy(g, wide);
  divide(parts, n, reduced_count(x, mask));
  copy(spread(wide, x, mask), args.grad_in[0]);
}

}  // namespace

void Mean::infer(OpArgs& args) {
  if (!is_floating(args.in[0].dtype))
    fail("[mean] of ", name_of(args.in[0].dtype), args.in[0].shape,
         ": convert it first, x.to(DType::f32)");
  args.out[0].shape = reduced_shape(args.in[0].shape, mask_of(args), args.attrs.as<Axes>().keepdim);
}

void Mean::forward(OpArgs& args) { run_floating(args, forward_as<float>, forward_as<double>); }
void Mean::backward(OpArgs& args) { run_floating(args, backward_as<float>, backward_as<double>); }

}  // namespace minim::op
