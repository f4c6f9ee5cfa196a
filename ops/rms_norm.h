// x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich, 2019). The mean and
// eps are fp32 (f64 for f64). eps is 1e-6 in every dtype, as published models use it; PyTorch's
// default is the dtype's own epsilon.
#pragma once
#include "minim/ops/norm_struct.h"

namespace minim::op {

struct RmsNorm {
  static constexpr std::array operands{
      Operand{"x"}, Operand{.name = "weight", .optional = true, .along = Along::shared}};
  static constexpr std::array outputs{
      Along::row, Along::each};  // y, and for backward: 1 / sqrt(mean(x^2) + eps)
  static constexpr int returned = 1;
  static constexpr Saves saves{.inputs = 0b11, .outputs = 0b10};
  struct Attrs {
    double eps = 1e-6;
  };
  static constexpr std::array numbers{number<&Attrs::eps>("eps")};
  static uint32_t axes(const Attrs&, int rank) { return last_axis(rank, "rms_norm"); }
  static void check(OpArgs& args) { check_parameters(args, operands, "rms_norm"); }

  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A *row = x[0], *weight = x[1];
    A *to = y[0], *kept = y[1];
    const A squares = lane.template sum<A>([=](Index j) { return row[j] * row[j]; });
    const A scale = math::rsqrt(squares / A(lane.n) + A(attrs.eps));
    lane.each([=](Index j) { to[j] = weight ? row[j] * scale * weight[j] : row[j] * scale; });
    lane.once([=] { kept[0] = scale; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], *weight = x[1], *from = g[0], scale = y[1][0];
    A *dx = d[0], *dweight = d[1];
    // Called with or without a weight: a condition inside the sum would keep it from being
    // vectorised.
    auto input = [=](auto g_normal) {
      const A along =
          lane.template sum<A>([=](Index j) { return g_normal(j) * (row[j] * scale); }) / A(lane.n);
      lane.each([=](Index j) { dx[j] = scale * (g_normal(j) - row[j] * scale * along); });
    };
    if (dx && weight) input([=](Index j) { return from[j] * weight[j]; });
    if (dx && !weight) input([=](Index j) { return from[j]; });
    if (dweight) lane.each([=](Index j) { dweight[j] = from[j] * (row[j] * scale); });
  }
  static std::vector<Example> examples() { return norm_examples<RmsNorm>(1); }
};

}  // namespace minim::op
