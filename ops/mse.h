// The squared difference. Squared in fp32: in f16 a difference of 256 would already be inf.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct SquaredError : Pointwise {
  static constexpr const char* name = "mse";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  template <class A>
  MINIM_HD static A forward(A x, A target) {
    return (x - target) * (x - target);
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A target, A* d) {
    d[0] = A(2) * g * (x - target);
    d[1] = -d[0];
  }
};
struct Mse : PairLoss<SquaredError> {};

}  // namespace minim::op
