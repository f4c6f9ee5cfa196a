#include "minim/ops/gather.h"

#include "minim/ops/index_lines.h"

namespace minim::op {
namespace {

int axis_of(const OpArgs& args) {
  return normalize_axis(args.attrs.as<Gather::Attrs>().axis, args.in[0].shape.rank(), "gather");
}
IndexLines lines_of(const OpArgs& args) {
  const int axis = axis_of(args);
  return full_lines("gather", args.in[1], axis, args.in[0].shape[axis]);
}

}  // namespace

void Gather::infer(OpArgs& args) {
  check_index_fits("gather", args.in[1].shape, "x", args.in[0].shape, axis_of(args));
  args.out[0].shape = args.in[1].shape;
}

void Gather::forward(OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) { lines_of(args).gather<A>(args.in[0], args.out[0]); });
}

void Gather::backward(OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    sum_apart<A>(args.grad_in[0], [&](A* sums, const Strides& strides) {
      lines_of(args).scatter_add(args.grad_out[0], sums, strides);
    });
  });
}

std::vector<Example> Gather::examples() {
  std::vector<Example> list;
  auto add = [&](const Shape& x, const Shape& index, Index axis) {
    list.push_back(
        {{x, index}, minim::Attrs(Attrs{axis}), x[normalize_axis(axis, x.rank(), "gather")]});
  };
  add({5}, {3}, 0);
  add({5}, {9}, 0);  // elements are taken more than once
  add({4, 5}, {4, 2}, 1);
  add({4, 5}, {6, 3}, 0);
  add({2, 3, 4}, {2, 3, 1}, -1);
  add({2, 3, 4}, {1, 5, 4}, 1);
  add({3, 4}, {3, 0}, 1);
  return list;
}

}  // namespace minim::op
