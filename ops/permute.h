// Reorders axes, as a view.
#pragma once
#include "minim/ops/view_struct.h"

namespace minim::op {

struct Permute : ViewOf<Permute> {
  struct Attrs {
    Dims order;  ///< result axis i is operand axis order[i]
  };
  static Index view(OpArgs& args) {
    const Arg& x = args.in[0];
    const Dims& order = args.attrs.as<Attrs>().order;
    if (order.rank() != x.shape.rank())
      fail("[permute] order ", order, " does not name every axis of ", x.shape);
    uint32_t seen = 0;
    args.out[0].shape = args.out[0].strides = order;
    for (int i = 0; i < order.rank(); ++i) {
      int axis = normalize_axis(order[i], x.shape.rank(), "permute");
      if (seen >> axis & 1) fail("[permute] order ", order, " names axis ", axis, " twice");
      seen |= 1u << axis;
      args.out[0].shape[i] = x.shape[axis];
      args.out[0].strides[i] = x.strides[axis];
    }
    return 0;
  }
  static bool unview(const OpArgs& args, const Arg& g, Strides& strides) {
    const Dims& order = args.attrs.as<Attrs>().order;
    strides = g.strides;
    for (int i = 0; i < order.rank(); ++i)
      strides[normalize_axis(order[i], order.rank(), "permute")] = g.strides[i];
    return true;
  }
  static constexpr Spec spec{.operands = {{"x"}}, .integers = true, .unview = unview};
  static std::vector<Example> examples() {
    return {{{{3, 5}}, minim::Attrs(Attrs{{1, 0}})},
            {{{2, 3, 4}}, minim::Attrs(Attrs{{2, 0, 1}})},
            {{{}}, minim::Attrs(Attrs{Dims{}})}};
  }
};

}  // namespace minim::op
