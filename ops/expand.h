// Repeats axes of size 1 (and new leading axes) without copying: their stride becomes 0. Backward
// sums, in fp32.
#pragma once
#include "minim/ops/view_struct.h"

namespace minim::op {

struct Expand : ViewOf<Expand> {
  struct Attrs {
    Shape shape;  ///< -1 keeps a size
  };
  static Index view(OpArgs& args) {
    const Arg& x = args.in[0];
    Shape to = args.attrs.as<Attrs>().shape;
    int shift = to.rank() - x.shape.rank();
    for (int i = 0; i < to.rank(); ++i) {
      if (i >= shift && to[i] == -1) to[i] = x.shape[i - shift];
      bool fits = i < shift || x.shape[i - shift] == to[i] || x.shape[i - shift] == 1;
      if (shift < 0 || to[i] < 0 || !fits)
        fail("[expand] ", x.shape, " does not broadcast to ", args.attrs.as<Attrs>().shape);
    }
    args.out[0].shape = to;
    args.out[0].strides = broadcast_strides(x.shape, x.strides, to);
    return 0;
  }
  static void backward(OpArgs& args) { sum_to(args.grad_out[0], args.grad_in[0]); }
  static std::vector<Example> examples() {
    return {{{{1, 4}}, minim::Attrs(Attrs{{3, -1}})},
            {{{3, 1}}, minim::Attrs(Attrs{{2, 3, 5}})},
            {{{}}, minim::Attrs(Attrs{{3}})}};
  }
};

}  // namespace minim::op
