// Every step-th element of one axis, from begin to before end (negative: from the back), as a view.
#pragma once
#include "minim/ops/view_struct.h"

namespace minim::op {

struct Slice : ViewOf<Slice> {
  struct Attrs {
    Index axis = 0, begin = 0, end = 0, step = 1;
  };
  static Index view(OpArgs& args) {
    const Arg& x = args.in[0];
    Attrs a = args.attrs.as<Attrs>();
    int axis = normalize_axis(a.axis, x.shape.rank(), "slice");
    Index n = x.shape[axis], begin = a.begin < 0 ? a.begin + n : a.begin,
          end = a.end < 0 ? a.end + n : std::min(a.end, n);
    if (a.step < 1 || begin < 0 || begin > n || end < begin)
      fail("[slice] ", a.begin, ":", a.end, ":", a.step, " is no range of axis ", axis, " of ",
           x.shape);
    args.out[0].shape = x.shape;
    args.out[0].strides = x.strides;
    const Index count = (end - begin) / a.step + ((end - begin) % a.step != 0);
    args.out[0].shape[axis] = count;
    if (count > 1) args.out[0].strides[axis] *= a.step;  // else a step may be beyond any stride
    return count > 0 ? begin * x.strides[axis] : 0;
  }
  static std::vector<Example> examples() {
    return {{{{7}}, minim::Attrs(Attrs{0, 1, 6, 2})},
            {{{3, 5}}, minim::Attrs(Attrs{1, -2, 5, 1})},
            {{{3, 5}}, minim::Attrs(Attrs{0, 2, 2, 1})}};
  }
};

}  // namespace minim::op
