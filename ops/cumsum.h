// The running sum along an axis. A sum in order has no lanes to keep its error small, so it is kept
// in f64 and each element is rounded once; of f64, wider still where it leaves the range
// (core/wide.h).
#pragma once
#include "minim/ops/reduce_struct.h"
#include "minim/ops/softmax.h"

namespace minim::op {

struct CumSum : Rowwise {
  struct Attrs {
    Index dim = -1;
    std::optional<DType> dtype{};  ///< x is converted to it first; by default x's, i64 for integers
  };
  static uint32_t axes(const Attrs& attrs, int rank) { return axis_bit(attrs.dim, rank, "cumsum"); }
  static void infer(OpArgs& args) {
    const auto& attrs = args.attrs.as<Attrs>();
    accumulate_in(args, attrs.dtype, "cumsum");
    args.out[0].shape = args.in[0].shape;
    axes(attrs, args.in[0].shape.rank());
  }
  static constexpr Spec spec{.operands = {{"x"}},
                             .outputs = {Along::row},
                             .result = Result::attribute,
                             .integers = true,
                             .wide = true,
                             .infer = infer};
  /// to(at(j)) = from(at(0)) + ... + from(at(j)); false where that left f64 on the way.
  template <class W, class A, class Lane, class At>
  MINIM_HD static bool run(Lane lane, const A* from, A* to, At at) {
    using Sum = std::conditional_t<std::is_same_v<A, float>, double, W>;
    lane.once([=] {
      Sum sum = 0;
      for (Index j = 0; j < lane.n; ++j) to[at(j)] = A(sum += Sum(from[at(j)]));
    });
    return !std::is_same_v<Sum, A> || lane.n == 0 || is_finite(to[at(lane.n - 1)]);
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    return run<W>(lane, x[0], y[0], [](Index j) { return j; });
  }
  template <class W, class A, class Lane>
  MINIM_HD static bool vjp(Lane lane, const Attrs&, In<A>, In<A>, In<A> g, Out<A> d) {
    const Index last = lane.n - 1;
    return run<W>(lane, g[0], d[0], [=](Index j) { return last - j; });
  }
  static std::vector<Example> examples() { return Softmax::row_examples<CumSum>(); }
};

}  // namespace minim::op
