// The product over axes. Its gradient is the product of the other elements, without a division, so
// zeros are no special case. Where a product on the way leaves the range, it is made wider
// (core/wide.h).
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Prod : Rowwise {
  using Attrs = Accumulated;
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "prod"); }
  static void infer(OpArgs& args) {
    const auto& attrs = args.attrs.as<Attrs>();
    accumulate_in(args, attrs.dtype, "prod");
    const Shape& x = args.in[0].shape;
    args.out[0].shape = reduced_shape(x, axes(attrs, x.rank()), attrs.keepdim);
  }
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::small}},
                             .outputs = {Along::each},
                             .saves = {.inputs = 0b1},
                             .result = Result::attribute,
                             .integers = true,
                             .wide = true,
                             .infer = infer};
  /// A product by one factor more; `safe` falls where what it is made from, and not a 0, is too
  /// small or too large for A.
  template <class W, class A>
  struct Product {
    W value;
    bool safe = true;
    MINIM_HD void operator*=(A factor) {
      value *= W(factor);
      if constexpr (std::is_floating_point_v<W>)
        safe = safe && (factor == A(0) || suffices<A>(math::fabs(value)));
    }
  };
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    Product<W, A> all{W(1)};
    for (Index j = 0; j < lane.n; ++j) all *= x[0][j];
    lane.once([=] { y[0][0] = A(all.value); });
    return all.safe;
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs&, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A *row = x[0], from = g[0][0];
    A* to = d[0];
    if constexpr (std::is_same_v<W, A>) {
      Product<A, A> up{from}, down{A(1)};
      for (Index j = 0; j < lane.n; ++j) up *= row[j], down *= row[lane.n - 1 - j];
      if (!up.safe || !down.safe) return false;
      lane.once([=] {
        A before = from, after = A(1);
        for (Index j = 0; j < lane.n; before *= row[j++]) to[j] = before;
        for (Index j = lane.n; j-- > 0; after *= row[j]) to[j] *= after;
      });
    } else {
      Index zeros = 0;
      W rest = W(from);  // by all that are not 0
      for (Index j = 0; j < lane.n; ++j) row[j] == A(0) ? void(++zeros) : void(rest *= W(row[j]));
      lane.each([=](Index j) {
        to[j] =
            row[j] == A(0) ? A(zeros == 1 ? rest : W(0)) : A(zeros == 0 ? rest / W(row[j]) : W(0));
      });
    }
    return true;
  }
  static std::vector<Example> examples() { return reduce_examples<Prod>(true); }
};

}  // namespace minim::op
