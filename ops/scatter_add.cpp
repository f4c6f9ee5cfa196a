#include "minim/ops/scatter_add.h"

#include "minim/ops/index_lines.h"

namespace minim::op {
namespace {

int axis_of(const OpArgs& args) {
  return normalize_axis(args.attrs.as<ScatterAdd::Attrs>().axis, args.in[0].shape.rank(),
                        "scatter_add");
}
IndexLines lines_of(const OpArgs& args) {
  const int axis = axis_of(args);
  return full_lines("scatter_add", args.in[1], axis, args.in[0].shape[axis]);
}

}  // namespace

void ScatterAdd::infer(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  check_index_fits("scatter_add", args.in[1].shape, "x", x, axis_of(args));
  check_index_fits("scatter_add", args.in[1].shape, "src", args.in[2].shape, -1);
  args.out[0].shape = x;
}

void ScatterAdd::forward(OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    sum_apart<A>(args.out[0], [&](A* sums, const Strides& strides) {
      const Shape& shape = args.out[0].shape;
      copy(args.in[0], {sums, dtype_for<A>(), shape, strides, true});
      lines_of(args).scatter_add(args.in[2], sums, strides);
    });
  });
}

void ScatterAdd::backward(OpArgs& args) {
  const Arg &g = args.grad_out[0], &to = args.grad_in[2];
  if (args.grad_in[0].data) copy(g, args.grad_in[0]);
  if (!to.data) return;
  if (!(to.shape == args.in[1].shape)) fill_zero(to);
  in_compute(args.dtype, [&]<class A>(A) { lines_of(args).gather<A>(g, to); });
}

std::vector<Example> ScatterAdd::examples() {
  std::vector<Example> list;
  auto add = [&](const Shape& x, const Shape& index, const Shape& src, Index axis) {
    list.push_back(
        {{x, index, src}, minim::Attrs(Attrs{axis}), x[normalize_axis(axis, x.rank(), "")]});
  };
  add({5}, {3}, {3}, 0);
  add({3}, {9}, {9}, 0);  // several meet
  add({4, 5}, {4, 2}, {4, 2}, 1);
  add({4, 5}, {6, 3}, {7, 4}, 0);  // a part of src, and of x
  add({2, 3, 4}, {2, 2, 1}, {2, 3, 1}, -1);
  add({2, 3, 4}, {1, 5, 4}, {2, 5, 4}, 1);
  add({3, 4}, {3, 0}, {3, 2}, 1);
  return list;
}

}  // namespace minim::op
