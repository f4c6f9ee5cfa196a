// x / max(norm(x), eps) along an axis, with the p-norm of norm.h, which neither overflows nor
// vanishes. A zero vector stays 0, and its gradient is 0 as that of its norm is: the slope 1 / eps
// beside it would leave f16.
// @throws Error unless p > 0.
#pragma once
#include "minim/ops/norm.h"

namespace minim::op {

struct Normalize : Rowwise {
  struct Attrs {
    double p = 2;
    Index dim = 1;
    double eps = 1e-12;
  };
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "normalize");
  }
  static void check(OpArgs& args) { Norm::check_order(args.attrs.as<Attrs>().p, "normalize"); }
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .outputs = {Along::row},
                             .saves = {.inputs = 0b1},
                             .wide = true,
                             .numbers = {number<&Attrs::p>("p"), number<&Attrs::eps>("eps")},
                             .check = check};

  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A* row = x[0];
    const W norm = Norm::value<W>(lane, attrs.p, row);
    const W by = norm < W(attrs.eps) ? W(attrs.eps) : norm;
    A* to = y[0];
    lane.each([=](Index j) { to[j] = A(W(row[j]) / by); });
    return Norm::is_enough<W, A>(attrs.p) && suffices<A>(by);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A *row = x[0], *from = g[0];
    const W norm = Norm::value<W>(lane, attrs.p, row), eps = W(attrs.eps);
    A* to = d[0];
    if (!Norm::is_enough<W, A>(attrs.p)) return false;
    if (norm == W(0)) {
      lane.each([=](Index j) { to[j] = A(0); });
    } else if (norm < eps) {
      lane.each([=](Index j) { to[j] = A(W(from[j]) / eps); });
    } else {
      const W dot = lane.template sum<W>([=](Index j) { return W(from[j]) * (W(row[j]) / norm); });
      Norm::with_slope<W>(lane, attrs.p, row, [=](auto by) {
        lane.each([=](Index j) { to[j] = A((W(from[j]) - dot * by(j)) / norm); });
      });
      return suffices<A>(norm);
    }
    return true;
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    for (double p : {2.0, 1.0, 3.0, 1.5, std::numeric_limits<double>::infinity()}) {
      all.add({{3, 5}}, {.p = p});
      all.add({{2, 3, 4}}, {.p = p, .dim = 0});
    }
    all.add({{37}}, {.dim = 0});
    all.add({{2, 3, 4}}, {.dim = -1, .eps = 2.5});  // some rows are shorter than eps
    all.add({{2, 3}}, {.eps = 100});
    all.add({{0, 3}});
    return all;
  }
};

}  // namespace minim::op
