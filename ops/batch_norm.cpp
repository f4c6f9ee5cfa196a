#include "minim/ops/batch_norm.h"

#include "minim/ops/channel_norm.h"

namespace minim::op {
namespace {

ChannelNorm norm_of(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  const double eps = args.attrs.as<BatchNorm::Attrs>().eps;
  return {args, x[1], x[0], false, eps, 3, args.in[1].defined ? 1 : -1};
}

}  // namespace

void BatchNorm::infer(OpArgs& args) {
  const Index channels = check_channels(args, spec.operands, "batch_norm");
  const Arg& x = args.in[0];
  const bool running = args.in[1].defined;
  if (running != args.in[2].defined)
    fail("[batch_norm] running_mean and running_var are given together or not at all");
  if (!running && channels > 0 && x.shape.numel() == channels)
    fail("[batch_norm] x ", x.shape, " has one value per channel: its variance says nothing; ",
         "give running_mean and running_var, or a larger batch");
  args.out[0].shape = x.shape;
  if (is_floating(x.dtype)) args.out[0].dtype = x.dtype;
  args.out[1].shape = args.out[2].shape = {channels};
}

void BatchNorm::forward(OpArgs& args) { norm_of(args).forward(); }
void BatchNorm::backward(OpArgs& args) { norm_of(args).backward(); }

std::vector<Example> BatchNorm::examples() {
  Examples<Attrs> all;
  auto add = [&](const Shape& x, bool running, bool weight, bool bias) {
    auto given = [&](bool yes) { return yes ? Shape{x[1]} : all.none; };
    all.add({x, given(running), given(running), given(weight), given(bias)});
  };
  add({6, 3}, false, true, true);
  add({2, 3, 4}, false, false, true);
  add({2, 3, 2, 3}, false, false, false);
  add({3, 2}, true, true, true);
  add({2, 3, 2, 2}, true, false, false);
  add({0, 3, 2}, false, true, true);
  return all;
}

}  // namespace minim::op
