// x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich, 2019). The mean and
// eps are fp32 (f64 for f64), and a row whose squares leave that is made wider (core/wide.h). eps
// is 1e-6 in every dtype, as published models use it; PyTorch's default is the dtype's own epsilon.
#pragma once
#include "minim/ops/norm_struct.h"

namespace minim::op {

struct RmsNorm : Rowwise {
  struct Attrs {
    double eps = 1e-6;
  };
  static uint32_t axes(const Attrs&, int rank) { return last_axis(rank, "rms_norm"); }
  static void check(OpArgs& args) { check_parameters(args, spec.operands, "rms_norm"); }
  static constexpr Spec spec{
      .operands = {{"x"}, {.name = "weight", .optional = true, .along = Along::shared}},
      .outputs = {Along::row, Along::each},  // y, and for backward: 1 / sqrt(mean(x^2) + eps); 0
                                             // where that was not made in A
      .returned = 1,
      .saves = {.inputs = 0b11, .outputs = 0b10},
      .wide = true,
      .numbers = {number<&Attrs::eps>("eps")},
      .check = check,
  };

  /// mean(x^2) + eps
  template <class W, class A, class Lane>
  MINIM_HD static W square(Lane lane, const Attrs& attrs, const A* x) {
    const W squares = lane.template sum<W>([=](Index j) { return W(x[j]) * W(x[j]); });
    return squares / W(A(lane.n)) + W(attrs.eps);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const A *row = x[0], *weight = x[1];
    A *to = y[0], *kept = y[1];
    const W mean = square<W>(lane, attrs, row), scale = math::rsqrt(mean);
    if (!suffices<A>(mean)) return false;
    lane.each(
        [=](Index j) { to[j] = A(weight ? W(row[j]) * scale * W(weight[j]) : W(row[j]) * scale); });
    lane.once([=] { kept[0] = std::is_same_v<W, A> ? A(scale) : A(0); });
    return true;
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A> y, In<A> g, Out<A> d) {
    const A *row = x[0], *weight = x[1], *from = g[0];
    A *dx = d[0], *dweight = d[1];
    W scale = W(y[1][0]);
    if constexpr (!std::is_same_v<W, A>)
      scale = math::rsqrt(square<W>(lane, attrs, row));
    else if (!(scale > A(0)))
      return false;
    // Called with or without a weight: a condition inside the sum would keep it from being
    // vectorised.
    auto input = [=](auto g_normal) {
      const W along = lane.template sum<W>([=](Index j) {
        return g_normal(j) * (W(row[j]) * scale);
      }) / W(A(lane.n));
      if (!suffices<A>(math::fabs(along))) return false;
      lane.each([=](Index j) { dx[j] = A(scale * (g_normal(j) - W(row[j]) * scale * along)); });
      return true;
    };
    bool done = true;
    if (dx && weight) done = input([=](Index j) { return W(from[j]) * W(weight[j]); });
    if (dx && !weight) done = input([=](Index j) { return W(from[j]); });
    if (!done) return false;
    if (dweight) lane.each([=](Index j) { dweight[j] = A(W(from[j]) * (W(row[j]) * scale)); });
    return true;
  }
  static std::vector<Example> examples() { return norm_examples<RmsNorm>(1); }
};

}  // namespace minim::op
