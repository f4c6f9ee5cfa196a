// The absolute difference; its slope is 0 where both are equal.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct AbsoluteError : Pointwise {
  static constexpr const char* name = "l1";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  template <class A>
  MINIM_HD static A forward(A x, A target) {
    return math::fabs(x - target);
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A target, A* d) {
    d[0] = g * math::sign(x - target);
    d[1] = -d[0];
  }
};
struct L1 : PairLoss<AbsoluteError> {};

}  // namespace minim::op
