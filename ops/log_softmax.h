// x - log(sum(exp(x))) along an axis. A row of nothing but -inf stays -inf, with the gradient 0.
// Backward makes the probabilities from x and two fp32 numbers per row, not from the result: that
// is rounded, in 16 bits by up to 3 % of a probability.
#pragma once
#include "minim/ops/softmax.h"

namespace minim::op {

struct LogSoftmax : Softmax {
  static constexpr Spec spec{
      .operands = {{"x"}},
      .outputs = {Along::row, Along::each,
                  Along::each},  // y, and for backward: max, log(sum(exp(x - max)))
      .returned = 1,
      .saves = {.inputs = 0b1, .outputs = 0b110},
  };
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "log_softmax");
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    if (lane.n == 0) return;
    const A* row = x[0];
    A *to = y[0], *kept_top = y[1], *kept_rest = y[2];
    const A largest = lane.template max<A>([=](Index j) { return row[j]; });
    // Nothing is subtracted where all are -inf.
    const A top = largest == -std::numeric_limits<A>::infinity() ? A(0) : largest;
    const A sum = lane.template sum<A>([=](Index j) { return math::exp(row[j] - top); });
    const A rest = sum == A(0) ? A(0) : math::log(sum);
    lane.each([=](Index j) { to[j] = (row[j] - top) - rest; });
    lane.once([=] {
      kept_top[0] = largest;
      kept_rest[0] = rest;
    });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A> y, In<A> g, Out<A> d) {
    if (lane.n == 0) return;
    const A *row = x[0], *from = g[0], top = y[1][0], rest = y[2][0];
    A* to = d[0];
    if (top == -std::numeric_limits<A>::infinity())
      return lane.each([=](Index j) { to[j] = A(0); });
    const A total = lane.template sum<A>([=](Index j) { return from[j]; });
    lane.each([=](Index j) { to[j] = from[j] - math::exp((row[j] - top) - rest) * total; });
  }
};

}  // namespace minim::op
