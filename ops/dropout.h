// zeroes each element with probability p and scales the rest by 1 / (1 - p). The mask is a pure
// function of (seed, stream, element), so backward draws it again instead of storing it
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Dropout : Pointwise {
  struct Attrs {
    double p = 0.5;
  };
  template <class A>
  MINIM_HD static A forward(const Attrs& a, A x, A u) {
    return u < A(a.p) ? A(0) : x * A(1 / (1 - a.p));
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& a, A g, A, A, A u, A* d) {
    d[0] = u < A(a.p) ? A(0) : g * A(1 / (1 - a.p));
  }
  static void infer(OpArgs& args) {
    double p = args.attrs.as<Attrs>().p;
    if (!(p >= 0 && p < 1)) fail("[dropout] p must be in [0, 1), not ", p);
    args.out[0].shape = args.in[0].shape;
  }
  static constexpr Spec spec{.operands = {{"x"}}, .random = true, .infer = infer};
};

}  // namespace minim::op
