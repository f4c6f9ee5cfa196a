#include "minim/ops/sum.h"

namespace minim::op {
namespace {

uint32_t mask_of(const OpArgs& args) {
  return axis_mask(args.attrs.as<Sum::Attrs>().axes, args.in[0].shape.rank(), "sum");
}

}  // namespace

void Sum::infer(OpArgs& args) {
  const auto& attrs = args.attrs.as<Attrs>();
  accumulate_in(args, attrs.dtype, "sum");
  args.out[0].shape = reduced_shape(args.in[0].shape, mask_of(args), attrs.keepdim);
}

void Sum::forward(OpArgs& args) {
  sum_to(args.in[0], keep_axes(args.out[0], args.in[0].shape, mask_of(args)));
}

void Sum::backward(OpArgs& args) {
  copy(spread(args.grad_out[0], args.in[0].shape, mask_of(args)), args.grad_in[0]);
}

}  // namespace minim::op
