#include "minim/ops/mean.h"

#include "minim/core/allocator.h"

namespace minim::op {
namespace {

uint32_t mask_of(const OpArgs& args) {
  return axis_mask(args.attrs.as<Axes>().axes, args.in[0].shape.rank(), "mean");
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
  const A by = A(reduced_count(x, mask));
  for (Index i = 0; i < n; ++i) parts[size_t(i)] /= by;
  copy(spread(wide, x, mask), args.grad_in[0]);
}

}  // namespace

void Mean::infer(OpArgs& args) {
  if (!is_floating(args.in[0].dtype))
    fail("[mean] of ", name_of(args.in[0].dtype), args.in[0].shape,
         ": convert it first, x.to(DType::f32)");
  args.out[0].shape = reduced_shape(args.in[0].shape, mask_of(args), args.attrs.as<Axes>().keepdim);
}

void Mean::forward(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  const uint32_t mask = mask_of(args);
  sum_to(args.in[0], keep_axes(args.out[0], x, mask), reduced_count(x, mask));
}
void Mean::backward(OpArgs& args) { run_floating(args, backward_as<float>, backward_as<double>); }

}  // namespace minim::op
