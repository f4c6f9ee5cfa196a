// log(sum(exp(x))) over axes, without overflow. Rows of nothing but -inf, and empty ones, give -inf
// with the gradient 0.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct LogSumExp {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr std::array outputs{
      Along::each, Along::each};  // the second is the same value in fp32, for backward
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b1, .outputs = 0b10};
  using Attrs = Axes;
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_mask(attrs.axes, rank, "logsumexp");
  }

  template <class A, class Lane>
  MINIM_HD static A value(Lane lane, const A* x) {
    constexpr A kInf = std::numeric_limits<A>::infinity();
    if (lane.n == 0) return -kInf;
    const A top = lane.template max<A>([=](Index j) { return x[j]; });
    if (top == -kInf || top == kInf) return top;
    return top + math::log(lane.template sum<A>([=](Index j) { return math::exp(x[j] - top); }));
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A v = value(lane, x[0]);
    lane.once([=] { y[0][0] = y[1][0] = v; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], v = y[1][0], from = g[0][0];
    A* to = d[0];
    if (v == -std::numeric_limits<A>::infinity())
      lane.each([=](Index j) { to[j] = A(0); });
    else
      lane.each([=](Index j) { to[j] = from * math::exp(row[j] - v); });
  }
  static std::vector<Example> examples() { return reduce_examples<LogSumExp>(true); }
};

}  // namespace minim::op
