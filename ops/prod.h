// The product over axes. Its gradient is the product of the other elements, without a division, so
// zeros are no special case.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Prod {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::small}};
  static constexpr std::array outputs{Along::each};
  static constexpr bool integers = true;
  static constexpr Result result = Result::attribute;
  static constexpr Saves saves{.inputs = 0b1};
  using Attrs = Accumulated;
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "prod"); }
  static void infer(OpArgs& args) {
    const auto& attrs = args.attrs.as<Attrs>();
    accumulate_in(args, attrs.dtype, "prod");
    const Shape& x = args.in[0].shape;
    args.out[0].shape = reduced_shape(x, axes(attrs, x.rank()), attrs.keepdim);
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A* row = x[0];
    A* to = y[0];
    lane.once([=] {
      to[0] = A(1);
      for (Index j = 0; j < lane.n; ++j) to[0] *= row[j];
    });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A *row = x[0], from = g[0][0];
    A* to = d[0];
    lane.once([=] {
      A before = from, after = A(1);
      for (Index j = 0; j < lane.n; before *= row[j++]) to[j] = before;
      for (Index j = lane.n; j-- > 0; after *= row[j]) to[j] *= after;
    });
  }
  static std::vector<Example> examples() { return reduce_examples<Prod>(true); }
};

}  // namespace minim::op
