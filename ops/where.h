// x where the condition holds, else y. The branch not taken gets gradient 0, which stays 0 through
// any slope
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Where {
  static constexpr std::array operands{Operand{"condition", Accepts::boolean}, Operand{"x"},
                                       Operand{"y"}};
  static constexpr size_t arity = 3;
  static constexpr bool integers = true;
  static constexpr uint32_t shown = 0b110;
  static constexpr Saves saves{.inputs = 0b1};
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
