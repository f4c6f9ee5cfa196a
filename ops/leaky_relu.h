// x above 0, negative_slope * x below (Maas et al., 2013); negative_slope is also the slope at 0
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct LeakyRelu : Pointwise {
  struct Attrs {
    double negative_slope = 0.01;
  };
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b1},
                             .numbers = {number<&Attrs::negative_slope>("negative_slope")}};
  template <class A>
  MINIM_HD static A forward(const Attrs& a, A x) {
    return math::select(x > A(0), x, A(a.negative_slope) * x);
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& a, A g, A, A x, A* d) {
    d[0] = g * math::select(x > A(0), A(1), A(a.negative_slope));
  }
};

}  // namespace minim::op
