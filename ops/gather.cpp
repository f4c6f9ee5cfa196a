#include "minim/ops/gather.h"

#include "minim/ops/indices.h"
#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

/// The index as lines along the axis: different lines meet different elements of x.
struct GatherLines {
  int axis;
  Shape across;  ///< the index's shape with the axis as 1: numbers the lines
  Index length, count;

  explicit GatherLines(const OpArgs& args)
      : axis(
            normalize_axis(args.attrs.as<Gather::Attrs>().axis, args.in[0].shape.rank(), "gather")),
        across(args.in[1].shape),
        length(across[axis]) {
    across[axis] = 1;
    count = across.numel();
  }
  /// Calls f(line) for every line, threaded.
  template <class F>
  void each(F f) const {
    parallel_for(count, std::max<Index>(1, 4096 / std::max<Index>(1, length)),
                 [&](Index begin, Index end) {
                   for (Index line = begin; line < end; ++line) f(line);
                 });
  }
  Index start(Index line, const Strides& strides) const { return offset_of(line, across, strides); }
};

template <class A>
void forward_in(OpArgs& args) {
  const Arg &x = args.in[0], &out = args.out[0];
  const GatherLines lines(args);
  const Indices index(args.in[1]);
  index.check("gather", "index", x.shape[lines.axis]);
  const Index step = out.strides[lines.axis], x_step = x.strides[lines.axis];
  lines.each([&](Index line) {
    const Index at = lines.start(line, out.strides);  // dense, as the indices are
    const void* from = advance(x.data, x.dtype, lines.start(line, x.strides));
    visit(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (Index j = 0; j < lines.length; ++j) {
        const A value = convert_to<A>(static_cast<const T*>(from)[index[at + j * step] * x_step]);
        store_run(advance(out.data, out.dtype, at + j * step), out.dtype, 1, 1, &value);
      }
    });
  });
}

template <class A>
void backward_in(OpArgs& args) {
  const Arg &g = args.grad_out[0], &to = args.grad_in[0];
  const GatherLines lines(args);
  const Indices index(args.in[1]);
  const Strides dense = contiguous_strides(args.in[1].shape);
  const Index step = dense[lines.axis], to_step = to.strides[lines.axis];
  Scratch<A> sums(size_t(to.shape.numel()));
  std::fill(sums.data(), sums.data() + to.shape.numel(), A(0));
  lines.each([&](Index line) {
    const Index at = lines.start(line, dense);
    A* sum = sums.data() + lines.start(line, to.strides);
    const void* from = advance(g.data, g.dtype, lines.start(line, g.strides));
    visit(g.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (Index j = 0; j < lines.length; ++j)
        sum[index[at + j * step] * to_step] +=
            convert_to<A>(static_cast<const T*>(from)[j * g.strides[lines.axis]]);
    });
  });
  copy({sums.data(), dtype_for<A>(), to.shape, to.strides, true}, to);
}

}  // namespace

void Gather::infer(OpArgs& args) {
  const Shape &x = args.in[0].shape, &index = args.in[1].shape;
  const int axis = normalize_axis(args.attrs.as<Attrs>().axis, x.rank(), "gather");
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index[i] <= x[i];
  if (!fits)
    fail("[gather] index ", index, " does not fit x ", x, ": it needs ", x.rank(),
         " axes, each at most as long as x's except axis ", axis);
  args.out[0].shape = index;
}

void Gather::forward(OpArgs& args) {
  switch (compute_in(args.dtype)) {
    case Compute::f32:
      return forward_in<float>(args);
    case Compute::f64:
      return forward_in<double>(args);
    case Compute::i64:
      return forward_in<int64_t>(args);
  }
}

void Gather::backward(OpArgs& args) {
  compute_in(args.dtype) == Compute::f64 ? backward_in<double>(args) : backward_in<float>(args);
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
