// a number where the boolean mask holds, else x. The number must fit the dtype (or be infinite)
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct MaskedFill {
  static constexpr std::array operands{Operand{"x"}, Operand{"mask", Accepts::boolean},
                                       Operand{"value"}};
  static constexpr size_t arity = 3;
  static constexpr bool integers = true;
  static constexpr uint32_t shown = 0b101;
  static constexpr Saves saves{.inputs = 0b10};
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
