// whether any element over axes is not 0, as bool; NaN is not 0; none is found among no elements
#pragma once
#include "minim/ops/reduce_struct.h"

namespace minim::op {

/// Whether some element is, or is not, 0.
template <bool kZero>
struct Finds : Rowwise {
  static constexpr Spec spec{.operands = {{"x"}},
                             .outputs = {Along::each},
                             .result = Result::boolean,
                             .integers = true,
                             .differentiable = false};
  using Attrs = Axes;
  static uint32_t axes(const Attrs& attrs, int rank) {
    return axis_mask(attrs.axes, rank, kZero ? "all" : "any");
  }
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A *row = x[0],
            found = lane.template sum<A>([=](Index j) { return A((row[j] == A(0)) == kZero); });
    lane.once([=] { y[0][0] = A((found > A(0)) != kZero); });
  }
  static std::vector<Example> examples() { return reduce_examples<Finds>(true); }
};
struct Any : Finds<false> {};

}  // namespace minim::op
