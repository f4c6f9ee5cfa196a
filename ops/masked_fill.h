// a number where the boolean mask holds, else x. The number must fit the dtype (or be infinite)
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct MaskedFill : Pointwise {
  static constexpr Spec spec{.operands = {{"x"}, {"mask", Accepts::boolean}, {"value"}},
                             .saves = {.inputs = 0b10},
                             .integers = true,
                             .shown = 0b101};
  template <class A>
  MINIM_HD static A forward(A x, A mask, A value) {
    return mask != A(0) ? value : x;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A, A mask, A, A* d) {
    d[0] = mask != A(0) ? A(0) : g;
    d[1] = A(0);
    d[2] = mask != A(0) ? g : A(0);
  }
};

}  // namespace minim::op
