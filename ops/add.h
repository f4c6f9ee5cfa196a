// x + y
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Add : Pointwise {
  static constexpr Spec spec{.operands = {{"x"}, {"y"}}, .integers = true, .shown = 0b11};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x + y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A, A, A* d) {
    d[0] = g;
    d[1] = g;
  }
};

}  // namespace minim::op
