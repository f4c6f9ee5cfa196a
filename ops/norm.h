// The p-norm over axes, (sum |x|^p)^(1/p) for p > 0; the largest |x| for p = inf. Values are
// divided by the largest one first, so that no power overflows or vanishes where the norm itself
// fits. The gradient at a zero vector is 0, and of p = inf it goes to the first largest element.
// @throws Error unless p > 0.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Norm {
  static constexpr std::array operands{Operand{"x", Accepts::floating, Domain::off_zero}};
  static constexpr std::array outputs{Along::each};
  static constexpr Saves saves{.inputs = 0b1};
  struct Attrs {
    Dims axes{};  ///< none: all
    bool keepdim = false;
    double p = 2;
  };
  static constexpr std::array numbers{number<&Attrs::p>("p")};
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "norm"); }
  static void check(OpArgs& args) { check_order(args.attrs.as<Attrs>().p, "norm"); }
  static void check_order(double p, const char* op) {
    if (!(p > 0)) fail("[", op, "] p is ", p, "; it must be positive, or inf for the largest |x|");
  }

  /// The largest |x|.
  template <class A, class Lane>
  MINIM_HD static A largest(Lane lane, const A* x) {
    return lane.n == 0 ? A(0) : lane.template max<A>([=](Index j) { return math::fabs(x[j]); });
  }
  /// The norm over the largest |x|, in [1, n^(1/p)].
  template <class A, class Lane>
  MINIM_HD static A ratio(Lane lane, double p, const A* x, A top) {
    const auto sum = [=](auto power) {
      return lane.template sum<A>([=](Index j) { return power(math::fabs(x[j]) / top); });
    };
    if (p == 2) return math::sqrt(sum([](A v) { return v * v; }));
    if (p == 1) return sum([](A v) { return v; });
    return math::pow(sum([=](A v) { return math::pow(v, A(p)); }), A(1 / p));
  }
  template <class A>
  MINIM_HD static bool is_ordinary(A top) {
    return top > A(0) && top <= std::numeric_limits<A>::max();
  }
  template <class A, class Lane>
  MINIM_HD static A value(Lane lane, double p, const A* x) {
    const A top = largest(lane, x);  // also the norm where it is 0, inf or NaN
    if (!is_ordinary(top) || p > std::numeric_limits<double>::max()) return top;
    return top * ratio(lane, p, x, top);
  }
  /// Calls f with the slope by x[j] as a function of j, for rows that are not all 0.
  template <class A, class Lane, class F>
  MINIM_HD static void with_slope(Lane lane, double p, const A* x, F f) {
    const A top = largest(lane, x);
    if (p > std::numeric_limits<double>::max()) {
      const Index first = lane.first([=](Index j) { return math::fabs(x[j]) == top; });
      return f([=](Index j) { return j == first ? math::sign(x[j]) : A(0); });
    }
    const A r = ratio(lane, p, x, top);
    const auto by = [=](auto grown) {
      return [=](Index j) {
        const A share = math::fabs(x[j]) / top / r;
        return math::select(share == A(0), A(0), math::sign(x[j]) * grown(share));
      };
    };
    if (p == 2) return f(by([](A share) { return share; }));
    if (p == 1) return f(by([](A) { return A(1); }));
    f(by([=](A share) { return math::pow(share, A(p - 1)); }));
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A norm = value(lane, attrs.p, x[0]);
    lane.once([=] { y[0][0] = norm; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const A from = g[0][0];
    A* to = d[0];
    if (lane.n == 0 || largest(lane, x[0]) == A(0))
      return lane.each([=](Index j) { to[j] = A(0); });
    with_slope(lane, attrs.p, x[0],
               [=](auto by) { lane.each([=](Index j) { to[j] = from * by(j); }); });
  }
  static std::vector<Example> examples() {
    std::vector<Example> all;
    for (double p : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()})
      for (const Example& e : reduce_examples<Norm>(true, {.p = p})) all.push_back(e);
    return all;
  }
};

}  // namespace minim::op
