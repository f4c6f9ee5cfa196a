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
  Shape& out = args.out[0].shape = args.in[0].shape;
  const int axis = axis_of<IndexSelect>(args);
  if (out.rank() > 0)
    out[axis] = index.numel();
  else if (index.numel() != 1)
    fail("[index_select] index ", index, " of a 0-dim x must have one element");
}

void IndexSelect::forward(OpArgs& args) {
  on_lines(args, [](const OpArgs& lines) { take(lines_of(lines), lines); });
}
void IndexSelect::backward(OpArgs& args) {
  on_lines(args, [](const OpArgs& lines) { give_back(lines_of(lines), lines); });
}

std::vector<Example> IndexSelect::examples() {
  Examples<Attrs> all;
  all.add({{5}, {3}}, {}, 5);
  all.add({{}, {1}}, {.axis = -1}, 1);
  all.add({{}, {}}, {}, 1);
  all.add({{4, 5}, {9}}, {}, 4);  // slices are named more than once
  all.add({{2, 3, 4}, {2}}, {.axis = 1}, 3);
  all.add({{2, 3, 4}, {5}}, {.axis = -1}, 4);
  all.add({{3, 2}, {}}, {}, 3);
  all.add({{3, 4}, {0}}, {.axis = 1}, 4);
  return all;
}

}  // namespace minim::op
