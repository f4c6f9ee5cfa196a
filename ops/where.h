// x where the condition holds, else y. The branch not taken gets gradient 0, which stays 0 through
// any slope
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Where : Pointwise {
  static constexpr Spec spec{.operands = {{"condition", Accepts::boolean}, {"x"}, {"y"}},
                             .saves = {.inputs = 0b1},
                             .integers = true,
                             .shown = 0b110};
  template <class A>
  MINIM_HD static A forward(A c, A x, A y) {
    return c != A(0) ? x : y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A c, A, A, A* d) {
    d[0] = A(0);
    d[1] = c != A(0) ? g : A(0);
    d[2] = c != A(0) ? A(0) : g;
  }
};

}  // namespace minim::op
