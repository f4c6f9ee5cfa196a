#include "minim/ops/scatter_add.h"

#include "minim/ops/index_lines.h"

namespace minim::op {

void ScatterAdd::infer(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  check_index_fits(name, args.in[1].shape, "x", x, axis_of<ScatterAdd>(args));
  check_index_fits(name, args.in[1].shape, "src", args.in[2].shape, -1);
  args.out[0].shape = x;
}

namespace {

void add_to_copy(const OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    sum_apart<A>(args.out[0], [&](A* sums, const Strides& strides) {
      const Shape& shape = args.out[0].shape;
      copy(args.in[0], {sums, dtype_for<A>(), shape, strides, true});
      full_lines<ScatterAdd>(args).scatter_add(args.in[2], sums, strides);
    });
  });
}

void to_both(const OpArgs& args) {
  const Arg &g = args.grad_out[0], &to = args.grad_in[2];
  if (args.grad_in[0].data) copy(g, args.grad_in[0]);
  if (!to.data) return;
  if (!(to.shape == args.in[1].shape)) fill_zero(to);
  in_compute(args.dtype, [&]<class A>(A) { full_lines<ScatterAdd>(args).gather<A>(g, to); });
}

}  // namespace

void ScatterAdd::forward(OpArgs& args) { on_lines(args, add_to_copy); }
void ScatterAdd::backward(OpArgs& args) { on_lines(args, to_both); }

std::vector<Example> ScatterAdd::examples() {
  Examples<Attrs> all;
  all.add({{5}, {3}, {3}}, {}, 5);
  all.add({{}, {}, {}}, {.axis = -1}, 1);
  all.add({{3}, {9}, {9}}, {}, 3);  // several meet
  all.add({{4, 5}, {4, 2}, {4, 2}}, {.axis = 1}, 5);
  all.add({{4, 5}, {6, 3}, {7, 4}}, {}, 4);  // a part of src, and of x
  all.add({{2, 3, 4}, {2, 2, 1}, {2, 3, 1}}, {.axis = -1}, 4);
  all.add({{2, 3, 4}, {1, 5, 4}, {2, 5, 4}}, {.axis = 1}, 3);
  all.add({{3, 4}, {3, 0}, {3, 2}}, {.axis = 1}, 4);
  return all;
}

}  // namespace minim::op
