// exp(x) / sum(exp(x)) along an axis. A row of nothing but -inf (all masked) gives zeros with the
// gradient 0, not NaN.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Softmax : Rowwise {
  static constexpr Spec spec{
      .operands = {{"x"}}, .outputs = {Along::row}, .saves = {.outputs = 0b1}};
  struct Attrs {
    Index dim = -1;
  };
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "softmax");
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    if (lane.n == 0) return;
    const A* row = x[0];
    A* to = y[0];
    const A top = lane.template max<A>([=](Index j) { return row[j]; });
    if (top == -std::numeric_limits<A>::infinity())
      return lane.each([=](Index j) { to[j] = A(0); });
    const A sum = lane.template sum<A>([=](Index j) { return math::exp(row[j] - top); });
    lane.each([=](Index j) { to[j] = math::exp(row[j] - top) / sum; });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A>, In<A> y, In<A> g, Out<A> d) {
    const A *result = y[0], *from = g[0];
    A* to = d[0];
    const A dot = lane.template sum<A>([=](Index j) { return from[j] * result[j]; });
    lane.each([=](Index j) { to[j] = result[j] * (from[j] - dot); });
  }
  static std::vector<Example> examples() { return row_examples<Softmax>(); }
  /// Every kind of row, along every axis. For ops whose attribute is `dim`.
  template <class Op>
  static std::vector<Example> row_examples() {
    Examples<typename Op::Attrs> all;
    for (const Shape& x : {Shape{1}, Shape{0}, Shape{3, 5}}) all.add({x}, {0});
    for (const Shape& x : {Shape{}, Shape{37}, Shape{2, 3, 4}, Shape{0, 3}}) all.add({x}, {-1});
    for (const Shape& x : {Shape{2, 3, 4}, Shape{2, 1}}) all.add({x}, {1});
    return all;
  }
};

}  // namespace minim::op
