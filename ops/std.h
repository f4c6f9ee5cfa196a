// The standard deviation over axes, sqrt(var(x)). Where it is 0 so is its gradient. Write
// minim::std(x): after `using namespace minim` the bare name means the standard library.
#pragma once
#include "minim/ops/var.h"

namespace minim::op {

struct Std : Var {
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "std"); }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A s = math::sqrt(value(lane, attrs, x[0], mean(lane, x[0])));
    lane.once([=] { y[0][0] = s; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A *row = x[0], m = mean(lane, row), s = math::sqrt(value(lane, attrs, row, m));
    const A slope = s == A(0) ? A(0) : g[0][0] / (s * divisor<A>(attrs, lane.n));
    A* to = d[0];
    lane.each([=](Index j) { to[j] = slope * (row[j] - m); });
  }
};

}  // namespace minim::op
