// (x - mean) / sqrt(var + eps) * weight + bias over the last axis, var of the population, in two
// passes (Ba, Kiros and Hinton, 2016). Everything but x and the result is fp32 (f64 for f64): var
// overflows f16 from 256 on, and eps would vanish in it. Where var leaves fp32 (x from 1e15 on) or
// vanishes in it, that row is made in f64 (core/wide.h).
#pragma once
#include "minim/ops/norm_struct.h"

namespace minim::op {

struct LayerNorm : Rowwise {
  struct Attrs {
    double eps = 1e-5;
  };
  static uint32_t axes(const Attrs&, int rank) { return last_axis(rank, "layer_norm"); }
  static void check(OpArgs& args) { check_parameters(args, spec.operands, "layer_norm"); }
  static constexpr Spec spec{
      .operands = {{"x"},
                   {.name = "weight", .optional = true, .along = Along::shared},
                   {.name = "bias", .optional = true, .along = Along::shared}},
      .outputs = {Along::row, Along::each, Along::each},  // y, and for backward: mean, 1 / sqrt(var
                                                          // + eps); 0 where that was not made in A
      .returned = 1,
      .saves = {.inputs = 0b011, .outputs = 0b110},
      .wide = true,
      .numbers = {number<&Attrs::eps>("eps")},
      .check = check,
  };

  template <class W>
  struct Statistics {
    W mean, rstd;
    bool safe;
  };
  template <class W, class A, class Lane>
  MINIM_HD static Statistics<W> statistics(Lane lane, const Attrs& attrs, const A* x) {
    const W n = W(A(lane.n)), mean = lane.template sum<W>([=](Index j) { return W(x[j]); }) / n;
    const W var =
        lane.template sum<W>([=](Index j) { return (W(x[j]) - mean) * (W(x[j]) - mean); }) / n;
    return {mean, math::rsqrt(var + W(attrs.eps)), suffices<A>(var + W(attrs.eps))};
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A *row = x[0], *weight = x[1], *bias = x[2];
    A *to = y[0], *kept_mean = y[1], *kept_rstd = y[2];
    const Statistics<W> s = statistics<W>(lane, attrs, row);
    if (!s.safe) return false;
    const W mean = s.mean, rstd = s.rstd;
    lane.each([=](Index j) {
      const W v = (W(row[j]) - mean) * rstd;
      to[j] = A((weight ? v * W(weight[j]) : v) + (bias ? W(bias[j]) : W(0)));
    });
    lane.once([=] {
      kept_mean[0] = A(mean);
      kept_rstd[0] = std::is_same_v<W, A> ? A(rstd) : A(0);
    });
    return true;
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], *weight = x[1], *from = g[0];
    const W n = W(A(lane.n));
    A *dx = d[0], *dweight = d[1], *dbias = d[2];
    Statistics<W> s{W(y[1][0]), W(y[2][0]), y[2][0] > A(0)};
    if constexpr (!std::is_same_v<W, A>) s = statistics<W>(lane, attrs, row);
    if (!s.safe) return false;
    const W mean = s.mean, rstd = s.rstd;
    auto normal = [=](Index j) { return (W(row[j]) - mean) * rstd; };
    // Called with or without a weight: a condition inside the sums would keep them from being
    // vectorised.
    auto input = [=](auto g_normal) {
      const W along = lane.template sum<W>([=](Index j) { return g_normal(j) * normal(j); }) / n;
      const W shift = lane.template sum<W>(g_normal) / n;
      if (!suffices<A>(math::fabs(along) + math::fabs(shift))) return false;
      lane.each([=](Index j) { dx[j] = A(rstd * (g_normal(j) - shift - normal(j) * along)); });
      return true;
    };
    bool done = true;
    if (dx && weight) done = input([=](Index j) { return W(from[j]) * W(weight[j]); });
    if (dx && !weight) done = input([=](Index j) { return W(from[j]); });
    if (!done) return false;
    if (dweight) lane.each([=](Index j) { dweight[j] = A(W(from[j]) * normal(j)); });
    if (dbias) lane.each([=](Index j) { dbias[j] = from[j]; });
    return true;
  }
  static std::vector<Example> examples() { return norm_examples<LayerNorm>(2); }
};

}  // namespace minim::op
