#include "minim/ops/group_norm.h"

#include "minim/ops/channel_norm.h"

namespace minim::op {
namespace {

ChannelNorm norm_of(OpArgs& args) {
  const auto& attrs = args.attrs.as<GroupNorm::Attrs>();
  const Shape& x = args.in[0].shape;
  return {args, x[0] * attrs.num_groups, x[1] / attrs.num_groups, true, attrs.eps, 1};
}

}  // namespace

void GroupNorm::infer(OpArgs& args) {
  const Index channels = check_channels(args, spec.operands, "group_norm");
  const Index groups = args.attrs.as<Attrs>().num_groups;
  if (groups < 1 || channels % groups != 0)
    fail("[group_norm] ", groups, " groups do not divide the ", channels, " channels of x ",
         args.in[0].shape);
  args.out[0].shape = args.in[0].shape;
  args.out[1].shape = args.out[2].shape = {args.in[0].shape[0], groups};
}

void GroupNorm::forward(OpArgs& args) { norm_of(args).forward(); }
void GroupNorm::backward(OpArgs& args) { norm_of(args).backward(); }

std::vector<Example> GroupNorm::examples() {
  Examples<Attrs> all;
  all.add({{2, 4, 3}, {4}, {4}}, {.num_groups = 2});
  all.add({{3, 6}, {6}, all.none}, {.num_groups = 2});
  all.add({{2, 3, 2, 4}, all.none, {3}}, {.num_groups = 1});
  all.add({{2, 3, 5}, all.none, all.none}, {.num_groups = 3});
  all.add({{0, 4, 3}, {4}, {4}}, {.num_groups = 2});
  return all;
}

}  // namespace minim::op
