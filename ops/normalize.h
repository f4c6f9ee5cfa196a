// x / max(norm(x), eps) along an axis, with the p-norm of norm.h, which neither overflows nor
// vanishes. A zero vector stays 0, and its gradient is 0 as that of its norm is: the slope 1 / eps
// beside it would leave f16.
// @throws Error unless p > 0.
#pragma once
#include "minim/ops/norm.h"

namespace minim::op {

struct Normalize {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::off_zero}};
  static constexpr std::array outputs{Along::row};
  static constexpr Saves saves{.inputs = 0b1};
  struct Attrs {
    double p = 2;
    Index dim = 1;
    double eps = 1e-12;
  };
  static constexpr std::array numbers{number<&Attrs::p>("p"), number<&Attrs::eps>("eps")};
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "normalize");
  }
  static void check(OpArgs& args) { Norm::check_order(args.attrs.as<Attrs>().p, "normalize"); }

  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A *row = x[0], norm = Norm::value(lane, attrs.p, row);
    const A by = norm < A(attrs.eps) ? A(attrs.eps) : norm;
    A* to = y[0];
    lane.each([=](Index j) { to[j] = row[j] / by; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A *row = x[0], *from = g[0], norm = Norm::value(lane, attrs.p, row), eps = A(attrs.eps);
    A* to = d[0];
    if (norm == A(0)) return lane.each([=](Index j) { to[j] = A(0); });
    if (norm < eps) return lane.each([=](Index j) { to[j] = from[j] / eps; });
    const A dot = lane.template sum<A>([=](Index j) { return from[j] * (row[j] / norm); });
    Norm::with_slope(lane, attrs.p, row, [=](auto by) {
      lane.each([=](Index j) { to[j] = (from[j] - dot * by(j)) / norm; });
    });
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    for (double p : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
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
