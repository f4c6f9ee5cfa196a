// The variance over axes: the sum of squared distances to the mean over n - correction, in two
// passes and in fp32 (f64 for f64). NaN or inf where n <= correction.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Var {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr std::array outputs{Along::each};
  static constexpr Saves saves{.inputs = 0b1};
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
  template <class A, class Lane>
  MINIM_HD static A mean(Lane lane, const A* x) {
    return lane.template sum<A>([=](Index j) { return x[j]; }) / A(lane.n);
  }
  template <class A, class Lane>
  MINIM_HD static A value(Lane lane, const Attrs& attrs, const A* x, A m) {
    const A squares = lane.template sum<A>([=](Index j) { return (x[j] - m) * (x[j] - m); });
    return squares / divisor<A>(attrs, lane.n);
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A v = value(lane, attrs, x[0], mean(lane, x[0]));
    lane.once([=] { y[0][0] = v; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A* row = x[0];
    A* to = d[0];
    const A m = mean(lane, row), slope = A(2) * g[0][0] / divisor<A>(attrs, lane.n);
    lane.each([=](Index j) { to[j] = slope * (row[j] - m); });
  }
  static std::vector<Example> examples() {
    std::vector<Example> all = reduce_examples<Var>(false, {}, false);
    for (const Example& e : reduce_examples<Var>(false, {.correction = 0})) all.push_back(e);
    return all;
  }
};

}  // namespace minim::op
