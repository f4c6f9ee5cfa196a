// log(sum(exp(x))) over axes, without overflow. Rows of nothing but -inf, and empty ones, give -inf
// with the gradient 0.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct LogSumExp : Rowwise {
  static constexpr Spec spec{
      .operands = {{"x"}},
      .outputs = {Along::each,
                  Along::each},  // the second is log(sum(exp(x - max))) in fp32, for backward
      .returned = 1,
      .saves = {.inputs = 0b1, .outputs = 0b10},
  };
  using Attrs = Axes;
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_mask(attrs.axes, rank, "logsumexp");
  }

  template <class A, class Lane>
  MINIM_HD static A largest(Lane lane, const A* x) {
    return lane.n == 0 ? -std::numeric_limits<A>::infinity()
                       : lane.template max<A>([=](Index j) { return x[j]; });
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A *row = x[0], top = largest(lane, row);
    const bool infinite = math::fabs(top) == std::numeric_limits<A>::infinity();
    const A rest = infinite ? A(0) : math::log(lane.template sum<A>([=](Index j) {
      return math::exp(row[j] - top);
    }));
    lane.once([=] {
      y[0][0] = infinite ? top : top + rest;
      y[1][0] = rest;
    });
  }
  /// The largest value is found again rather than saved in a sum with the logarithm, whose rounding
  /// would be an error of every slope.
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], rest = y[1][0], from = g[0][0], top = largest(lane, row);
    A* to = d[0];
    if (top == -std::numeric_limits<A>::infinity())
      lane.each([=](Index j) { to[j] = A(0); });
    else
      lane.each([=](Index j) { to[j] = from * math::exp((row[j] - top) - rest); });
  }
  static std::vector<Example> examples() { return reduce_examples<LogSumExp>(true); }
};

}  // namespace minim::op
