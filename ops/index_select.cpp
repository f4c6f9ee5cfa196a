#include "minim/ops/index_select.h"

#include "minim/ops/index_lines.h"

namespace minim::op {
namespace {

IndexLines lines_of(const OpArgs& args) {
  const Shape& out = args.out[0].shape;
  const int axis = axis_of<IndexSelect>(args);
  Strides steps = out;
  for (int i = 0; i < out.rank(); ++i) steps[i] = i == axis;
  return {IndexSelect::name, args.in[1], out, steps, axis, args.in[0].shape[axis]};
}

}  // namespace

void IndexSelect::infer(OpArgs& args) {
  const Shape& index = args.in[1].shape;
  if (index.rank() > 1)
    fail("[index_select] index ", index,
         " must have one axis; for an index of x's rank use gather");
  args.out[0].shape = args.in[0].shape;
  args.out[0].shape[axis_of<IndexSelect>(args)] = index.numel();
}

void IndexSelect::forward(OpArgs& args) { take(lines_of(args), args); }
void IndexSelect::backward(OpArgs& args) { give_back(lines_of(args), args); }

std::vector<Example> IndexSelect::examples() {
  Examples<Attrs> all;
  all.add({{5}, {3}}, {}, 5);
  all.add({{4, 5}, {9}}, {}, 4);  // slices are named more than once
  all.add({{2, 3, 4}, {2}}, {.axis = 1}, 3);
  all.add({{2, 3, 4}, {5}}, {.axis = -1}, 4);
  all.add({{3, 2}, {}}, {}, 3);
  all.add({{3, 4}, {0}}, {.axis = 1}, 4);
  return all;
}

}  // namespace minim::op
