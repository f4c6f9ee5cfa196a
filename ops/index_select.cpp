#include "minim/ops/index_select.h"

#include "minim/ops/index_lines.h"

namespace minim::op {
namespace {

int axis_of(const OpArgs& args) {
  return normalize_axis(args.attrs.as<IndexSelect::Attrs>().axis, args.in[0].shape.rank(),
                        "index_select");
}
IndexLines lines_of(const OpArgs& args, const Shape& out) {
  const int axis = axis_of(args);
  Strides steps = out;
  for (int i = 0; i < out.rank(); ++i) steps[i] = i == axis;
  return {"index_select", args.in[1], out, steps, axis, args.in[0].shape[axis]};
}

}  // namespace

void IndexSelect::infer(OpArgs& args) {
  const Shape& index = args.in[1].shape;
  if (index.rank() > 1)
    fail("[index_select] index ", index,
         " must have one axis; for an index of x's rank use gather");
  args.out[0].shape = args.in[0].shape;
  args.out[0].shape[axis_of(args)] = index.numel();
}

void IndexSelect::forward(OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    lines_of(args, args.out[0].shape).gather<A>(args.in[0], args.out[0]);
  });
}

void IndexSelect::backward(OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    sum_apart<A>(args.grad_in[0], [&](A* sums, const Strides& strides) {
      lines_of(args, args.out[0].shape).scatter_add(args.grad_out[0], sums, strides);
    });
  });
}

std::vector<Example> IndexSelect::examples() {
  std::vector<Example> list;
  auto add = [&](const Shape& x, const Shape& index, Index axis) {
    list.push_back(
        {{x, index}, minim::Attrs(Attrs{axis}), x[normalize_axis(axis, x.rank(), "index_select")]});
  };
  add({5}, {3}, 0);
  add({4, 5}, {9}, 0);  // slices are named more than once
  add({2, 3, 4}, {2}, 1);
  add({2, 3, 4}, {5}, -1);
  add({3, 2}, {}, 0);
  add({3, 4}, {0}, 1);
  return list;
}

}  // namespace minim::op
