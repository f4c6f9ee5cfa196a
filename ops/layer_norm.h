// (x - mean) / sqrt(var + eps) * weight + bias over the last axis, var of the population, in two
// passes (Ba, Kiros and Hinton, 2016). Everything but x and the result is fp32 (f64 for f64): var
// overflows f16 from 256 on, and eps would vanish in it.
#pragma once
#include "minim/ops/norm_struct.h"

namespace minim::op {

struct LayerNorm {
  static constexpr std::array operands{
      Operand{"x"}, Operand{.name = "weight", .optional = true, .along = Along::shared},
      Operand{.name = "bias", .optional = true, .along = Along::shared}};
  static constexpr std::array outputs{
      Along::row, Along::each, Along::each};  // y, and for backward: mean, 1 / sqrt(var + eps)
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b011, .outputs = 0b110};
  struct Attrs {
    double eps = 1e-5;
  };
  static constexpr std::array numbers{number<&Attrs::eps>("eps")};
  static uint32_t axes(const Attrs&, int rank) { return last_axis(rank, "layer_norm"); }
  static void check(OpArgs& args) { check_parameters(args, operands, "layer_norm"); }

  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A *row = x[0], *weight = x[1], *bias = x[2], n = A(lane.n);
    A *to = y[0], *kept_mean = y[1], *kept_rstd = y[2];
    const A mean = lane.template sum<A>([=](Index j) { return row[j]; }) / n;
    const A var =
        lane.template sum<A>([=](Index j) { return (row[j] - mean) * (row[j] - mean); }) / n;
    const A rstd = math::rsqrt(var + A(attrs.eps));
    lane.each([=](Index j) {
      const A v = (row[j] - mean) * rstd;
      to[j] = (weight ? v * weight[j] : v) + (bias ? bias[j] : A(0));
    });
    lane.once([=] {
      kept_mean[0] = mean;
      kept_rstd[0] = rstd;
    });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], *weight = x[1], *from = g[0], mean = y[1][0], rstd = y[2][0],
            n = A(lane.n);
    A *dx = d[0], *dweight = d[1], *dbias = d[2];
    auto normal = [=](Index j) { return (row[j] - mean) * rstd; };
    // Called with or without a weight: a condition inside the sums would keep them from being
    // vectorised.
    auto input = [=](auto g_normal) {
      const A along = lane.template sum<A>([=](Index j) { return g_normal(j) * normal(j); }) / n;
      const A shift = lane.template sum<A>(g_normal) / n;
      lane.each([=](Index j) { dx[j] = rstd * (g_normal(j) - shift - normal(j) * along); });
    };
    if (dx && weight) input([=](Index j) { return from[j] * weight[j]; });
    if (dx && !weight) input([=](Index j) { return from[j]; });
    if (dweight) lane.each([=](Index j) { dweight[j] = from[j] * normal(j); });
    if (dbias) lane.each([=](Index j) { dbias[j] = from[j]; });
  }
  static std::vector<Example> examples() { return norm_examples<LayerNorm>(2); }
};

}  // namespace minim::op
