// x - log(sum(exp(x))) along an axis. A row of nothing but -inf stays -inf, with the gradient 0.
#pragma once
#include "minim/ops/softmax.h"

namespace minim::op {

struct LogSoftmax : Softmax {
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "log_softmax");
  }
  /// The largest value; 0 where all are -inf, so that nothing is subtracted from them.
  template <class A, class Lane>
  MINIM_HD static A finite_top(Lane lane, const A* x) {
    const A top = lane.template max<A>([=](Index j) { return x[j]; });
    return top == -std::numeric_limits<A>::infinity() ? A(0) : top;
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    if (lane.n == 0) return;
    const A* row = x[0];
    A* to = y[0];
    const A top = finite_top(lane, row);
    const A sum = lane.template sum<A>([=](Index j) { return math::exp(row[j] - top); });
    const A rest = sum == A(0) ? A(0) : math::log(sum);
    lane.each([=](Index j) { to[j] = (row[j] - top) - rest; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A>, In<A> y, In<A> g, Out<A> d) {
    if (lane.n == 0) return;
    const A *result = y[0], *from = g[0];
    A* to = d[0];
    const A top = lane.template max<A>([=](Index j) { return result[j]; });
    if (top == -std::numeric_limits<A>::infinity())
      return lane.each([=](Index j) { to[j] = A(0); });
    const A total = lane.template sum<A>([=](Index j) { return from[j]; });
    lane.each([=](Index j) { to[j] = from[j] - math::exp(result[j]) * total; });
  }
};

}  // namespace minim::op
