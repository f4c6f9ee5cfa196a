// The variance over axes: the sum of squared distances to the mean over n - correction, in two
// passes and in fp32 (f64 for f64), or wider where that would not do (core/wide.h). NaN or inf
// where n <= correction.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Var : Rowwise {
  static constexpr Spec spec{
      .operands = {{"x"}}, .outputs = {Along::each}, .saves = {.inputs = 0b1}, .wide = true};
  struct Attrs {
    Dims axes{};  ///< none: all
    bool keepdim = false;
    double correction = 1;  ///< 1: unbiased (Bessel); 0: of the population
  };
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "var"); }

  template <class A>
  MINIM_HD static A divisor(const Attrs& attrs, Index n) {
    const double left = double(n) - attrs.correction;
    return A(left > 0 ? left : 0);
  }
  template <class W, class A, class Lane>
  MINIM_HD static W mean(Lane lane, const A* x) {
    return lane.template sum<W>([=](Index j) { return W(x[j]); }) / W(A(lane.n));
  }
  template <class W, class A, class Lane>
  MINIM_HD static W value(Lane lane, const Attrs& attrs, const A* x, W m) {
    const W squares = lane.template sum<W>([=](Index j) { return (W(x[j]) - m) * (W(x[j]) - m); });
    return squares / W(divisor<A>(attrs, lane.n));
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const W v = value<W>(lane, attrs, x[0], mean<W>(lane, x[0]));
    lane.once([=] { y[0][0] = A(v); });
    return suffices<A>(v);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A* row = x[0];
    A* to = d[0];
    const W m = mean<W>(lane, row), slope = W(2) * W(g[0][0]) / W(divisor<A>(attrs, lane.n));
    lane.each([=](Index j) { to[j] = A(slope * (W(row[j]) - m)); });
    return suffices<A>(math::fabs(slope)) && !(math::fabs(m) > W(kSafe<A>)) && m == m;
  }
  static std::vector<Example> examples() {
    std::vector<Example> all = reduce_examples<Var>(false, {}, false);
    for (const Example& e : reduce_examples<Var>(false, {.correction = 0})) all.push_back(e);
    return all;
  }
};

}  // namespace minim::op
