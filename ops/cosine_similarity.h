// The cosine of the angle between x and y along an axis, x . y / (max(|x|, eps) max(|y|, eps)).
// Each is divided by its length before they are multiplied, so nothing overflows. With a zero
// vector it is 0, and so is that vector's gradient (see normalize.h).
// @throws Error for different shapes.
#pragma once
#include "minim/ops/norm.h"

namespace minim::op {

struct CosineSimilarity : Rowwise {
  struct Attrs {
    Index dim = 1;
    double eps = 1e-8;
  };
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_bit(attrs.dim, rank, "cosine_similarity");
  }
  static void check(OpArgs& args) {
    if (!(args.in[0].shape == args.in[1].shape))
      fail("[cosine_similarity] x has shape ", args.in[0].shape, ", y ", args.in[1].shape,
           "; they must be equal: reshape or expand one");
  }
  static constexpr Spec spec{.operands = {{"x"}, {"y"}},
                             .outputs = {Along::each},
                             .saves = {.inputs = 0b11},
                             .wide = true,
                             .numbers = {number<&Attrs::eps>("eps")},
                             .check = check};

  template <class W>
  MINIM_HD static W divisor(const Attrs& attrs, W norm) {
    return norm < W(attrs.eps) ? W(attrs.eps) : norm;
  }
  template <class W, class A, class Lane>
  MINIM_HD static W cosine(Lane lane, const A* x, W by_x, const A* y, W by_y) {
    return lane.template sum<W>([=](Index j) { return W(x[j]) / by_x * (W(y[j]) / by_y); });
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs& attrs, In<A> x, Out<A> y) {
    const W by_x = divisor(attrs, Norm::value<W>(lane, 2, x[0])),
            by_y = divisor(attrs, Norm::value<W>(lane, 2, x[1]));
    const W c = cosine<W>(lane, x[0], by_x, x[1], by_y);
    lane.once([=] { y[0][0] = A(c); });
    return suffices<A>(by_x) && suffices<A>(by_y);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs& attrs, In<A> x, In<A>, In<A> g, Out<A> d) {
    const W norm[2] = {Norm::value<W>(lane, 2, x[0]), Norm::value<W>(lane, 2, x[1])};
    const W by[2] = {divisor(attrs, norm[0]), divisor(attrs, norm[1])};
    const W c = cosine<W>(lane, x[0], by[0], x[1], by[1]);
    for (int k = 0; k < 2; ++k) {
      if (!d[k]) continue;
      const A *own = x[k], *other = x[1 - k];
      const W by_own = by[k], by_other = by[1 - k];
      const W slope = norm[k] == W(0) ? W(0) : W(g[0][0]) / by_own;
      const W along = norm[k] < by_own ? W(0) : c;  // a clamped length does not change
      A* to = d[k];
      lane.each([=](Index j) {
        to[j] = A(slope * (W(other[j]) / by_other - along * (W(own[j]) / by_own)));
      });
    }
    return suffices<A>(by[0]) && suffices<A>(by[1]);
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    all.add({{3, 5}, {3, 5}});
    all.add({{37}, {37}}, {.dim = 0});
    all.add({{2, 3, 4}, {2, 3, 4}}, {.dim = -1});
    all.add({{2, 3, 4}, {2, 3, 4}}, {.dim = 0, .eps = 3});  // some vectors are shorter than eps
    all.add({{0, 3}, {0, 3}});
    return all;
  }
};

}  // namespace minim::op
