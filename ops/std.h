// The standard deviation over axes, sqrt(var(x)). Where it is 0 so is its gradient. Write
// minim::std(x): after `using namespace minim` the bare name means the standard library.
#pragma once
#include "minim/ops/var.h"

namespace minim::op {

struct Std : Var {
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "std"); }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const W v = value<W>(lane, attrs, x[0], mean<W>(lane, x[0])), s = math::sqrt(v);
    lane.once([=] { y[0][0] = A(s); });
    return suffices<A>(v);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A* row = x[0];
    const W m = mean<W>(lane, row), v = value<W>(lane, attrs, row, m), s = math::sqrt(v);
    const W slope = s == W(0) ? W(0) : W(g[0][0]) / (s * W(divisor<A>(attrs, lane.n)));
    A* to = d[0];
    lane.each([=](Index j) { to[j] = A(slope * (W(row[j]) - m)); });
    return suffices<A>(v) && suffices<A>(math::fabs(slope));
  }
};

}  // namespace minim::op
