// The p-norm over axes, (sum |x|^p)^(1/p) for p > 0; the largest |x| for p = inf. Values are
// divided by the largest one first, so that no power overflows or vanishes where the norm itself
// fits; where a quotient could vanish that still counts (p < 2), it is wider (core/wide.h). The
// gradient at a zero vector is 0, and of p = inf it goes to the first largest element.
// @throws Error unless p > 0.
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

struct Norm : Rowwise {
  struct Attrs {
    Dims axes{};  ///< none: all
    bool keepdim = false;
    double p = 2;
  };
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_mask(attrs.axes, rank, "norm"); }
  static void check(OpArgs& args) { check_order(args.attrs.as<Attrs>().p, "norm"); }
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .outputs = {Along::each},
                             .saves = {.inputs = 0b1},
                             .wide = true,
                             .numbers = {number<&Attrs::p>("p")},
                             .check = check};
  static void check_order(double p, const char* op) {
    if (!(p > 0)) fail("[", op, "] p is ", p, "; it must be positive, or inf for the largest |x|");
  }

  /// Whether A does: a share of the norm that vanishes in it has a power p and a slope that vanish,
  /// too.
  template <class W, class A>
  MINIM_HD static bool is_enough(double p) {
    return !std::is_same_v<W, A> || p == 1 || p >= 2;
  }
  /// The largest |x|.
  template <class W, class A, class Lane>
  MINIM_HD static W largest(Lane lane, const A* x) {
    return W(lane.n == 0 ? A(0) : lane.template max<A>([=](Index j) { return math::fabs(x[j]); }));
  }
  /// The norm over the largest |x|, in [1, n^(1/p)].
  template <class W, class A, class Lane>
  MINIM_HD static W ratio(Lane lane, double p, const A* x, W top) {
    const auto sum = [=](auto power) {
      return lane.template sum<W>([=](Index j) { return power(math::fabs(W(x[j])) / top); });
    };
    if (p == 2) return math::sqrt(sum([](W v) { return v * v; }));
    if (p == 1) return sum([](W v) { return v; });
    return math::pow(sum([=](W v) { return math::pow(v, exponent<W>(p)); }), exponent<W>(1 / p));
  }
  /// What pow takes beside a W.
  template <class W>
  using Exponent = std::conditional_t<std::is_same_v<W, float>, float, double>;
  template <class W>
  MINIM_HD static Exponent<W> exponent(double p) {
    return Exponent<W>(p);
  }
  template <class W>
  MINIM_HD static bool is_ordinary(W top) {
    return top > W(0) && is_finite(top);
  }
  template <class W, class A, class Lane>
  MINIM_HD static W value(Lane lane, double p, const A* x) {
    const W top = largest<W>(lane, x);  // also the norm where it is 0, inf or NaN
    if (!is_ordinary(top) || p > std::numeric_limits<double>::max()) return top;
    return top * ratio<W>(lane, p, x, top);
  }
  /// Calls f with the slope by x[j] as a function of j, for rows that are not all 0.
  template <class W, class A, class Lane, class F>
  MINIM_HD static void with_slope(Lane lane, double p, const A* x, F f) {
    const W top = largest<W>(lane, x);
    if (p > std::numeric_limits<double>::max()) {
      const Index first = lane.first([=](Index j) { return W(math::fabs(x[j])) == top; });
      return f([=](Index j) { return j == first ? W(math::sign(x[j])) : W(0); });
    }
    if (p == 1) return f([=](Index j) { return W(math::sign(x[j])); });
    const W r = ratio<W>(lane, p, x, top);
    const auto by = [=](auto grown) {
      return [=](Index j) {
        const W share = math::fabs(W(x[j])) / top / r;
        return math::select(share == W(0), W(0), W(math::sign(x[j])) * grown(share));
      };
    };
    if (p == 2) return f(by([](W share) { return share; }));
    f(by([=](W share) { return math::pow(share, exponent<W>(p - 1)); }));
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    if (!is_enough<W, A>(attrs.p)) return false;
    const W norm = value<W>(lane, attrs.p, x[0]);
    lane.once([=] { y[0][0] = A(norm); });
    return true;
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    if (!is_enough<W, A>(attrs.p)) return false;
    const W from = W(g[0][0]);
    A* to = d[0];
    if (lane.n == 0 || largest<W>(lane, x[0]) == W(0))
      lane.each([=](Index j) { to[j] = A(0); });
    else
      with_slope<W>(lane, attrs.p, x[0],
                    [=](auto by) { lane.each([=](Index j) { to[j] = A(from * by(j)); }); });
    return true;
  }
  static std::vector<Example> examples() {
    std::vector<Example> all;
    for (double p : {2.0, 1.0, 3.0, 0.5, 1.5, std::numeric_limits<double>::infinity()})
      for (const Example& e : reduce_examples<Norm>(true, {.p = p})) all.push_back(e);
    return all;
  }
};

}  // namespace minim::op
