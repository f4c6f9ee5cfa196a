// The largest value over axes; NaN if there is one. Its gradient goes to the first element that has
// it.
// @throws Error for a reduction of no elements.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

/// The first j whose x[j] is `top`, the row's maximum (NaN is the largest of all). n >= 1.
template <class A, class Lane>
MINIM_HD Index first_of(Lane lane, const A* x, A top) {
  const Index n = lane.n;
  return n - lane.template max<Index>([=](Index j) {
    return x[j] == top || (x[j] != x[j] && top != top) ? n - j : Index{0};
  });
}

struct Max {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr std::array outputs{Along::each};
  static constexpr bool integers = true;
  static constexpr Saves saves{.inputs = 0b1};
  using Attrs = Axes;
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "max"); }
  static void check(OpArgs& args) {
    check_not_empty(args, axes(args.attrs.as<Attrs>(), args.in[0].shape.rank()), "max");
  }

  template <class A, class Lane>
  MINIM_HD static A top(Lane lane, const A* x) {
    return lane.template max<A>([=](Index j) { return x[j]; });
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, const A* const* x, A* const* y) {
    const A best = top(lane, x[0]);
    A* to = y[0];
    lane.once([=] { to[0] = best; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, const A* const* x, const A* const*,
                           const A* const* g, A* const* d) {
    const Index first = first_of(lane, x[0], top(lane, x[0]));
    const A from = g[0][0];
    A* to = d[0];
    lane.each([=](Index j) { to[j] = j == first ? from : A(0); });
  }
  static std::vector<Example> examples() {
    std::vector<Example> list = reduce_examples<Max>(false);
    add_single<Max>(list);
    return list;
  }
};

}  // namespace minim::op
