// ops/extreme_struct.h -- the largest or the smallest value over axes; NaN if there is one. Its
// gradient goes to the first element that has it.
// @throws Error for a reduction of no elements.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

template <bool kSmallest>
struct Extreme : Rowwise {
  static constexpr const char* name = kSmallest ? "min" : "max";
  using Attrs = Axes;
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, name); }
  static void check(OpArgs& args) {
    check_not_empty(args, axes(args.attrs.as<Attrs>(), args.in[0].shape.rank()), name);
  }
  static constexpr Spec spec{.operands = {{"x"}},
                             .outputs = {Along::each},
                             .saves = {.inputs = 0b1},
                             .integers = true,
                             .check = check};

  /// For the smallest, turns the order round and is its own inverse; ~x is that without overflow.
  template <class A>
  MINIM_HD static A key(A x) {
    if constexpr (!kSmallest)
      return x;
    else if constexpr (std::is_integral_v<A>)
      return ~x;
    else
      return -x;
  }
  template <class A, class Lane>
  MINIM_HD static A top(Lane lane, const A* x) {
    return key(lane.template max<A>([=](Index j) { return key(x[j]); }));
  }
  /// The first j whose x[j] is the extreme one.
  template <class A, class Lane>
  MINIM_HD static Index first(Lane lane, const A* x) {
    const A best = top(lane, x);
    return lane.first([=](Index j) { return (x[j] == best) | ((x[j] != x[j]) & (best != best)); });
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A best = top(lane, x[0]);
    lane.once([=] { y[0][0] = best; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A>, In<A> g, Out<A> d) {
    const Index at = first(lane, x[0]);
    const A from = g[0][0];
    A* to = d[0];
    lane.each([=](Index j) { to[j] = j == at ? from : A(0); });
  }
  static std::vector<Example> examples() { return reduce_examples<Extreme>(false); }
};

}  // namespace minim::op
