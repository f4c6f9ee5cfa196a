// The running sum along an axis. A sum in order has no lanes to keep its error small, so it is kept
// in f64 and each element is rounded once.
#pragma once
#include "minim/ops/reduce_struct.h"
#include "minim/ops/softmax.h"

namespace minim::op {

struct CumSum {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr std::array outputs{Along::row};
  static constexpr bool integers = true;
  static constexpr Result result = Result::attribute;
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
  template <class A>
  using Wide = std::conditional_t<std::is_integral_v<A>, A, double>;
  template <class A, class Lane>
  MINIM_HD static void forward(Lane lane, const Attrs&, In<A> x, Out<A> y) {
    const A* row = x[0];
    A* to = y[0];
    lane.once([=] {
      Wide<A> sum = 0;
      for (Index j = 0; j < lane.n; ++j) to[j] = A(sum += row[j]);
    });
  }
  template <class A, class Lane>
  MINIM_HD static void vjp(Lane lane, const Attrs&, In<A>, In<A>, In<A> g, Out<A> d) {
    const A* from = g[0];
    A* to = d[0];
    lane.once([=] {
      Wide<A> sum = 0;
      for (Index j = lane.n; j-- > 0;) to[j] = A(sum += from[j]);
    });
  }
  static std::vector<Example> examples() { return Softmax::row_examples<CumSum>(); }
};

}  // namespace minim::op
