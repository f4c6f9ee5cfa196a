// x + y
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Add {
  static constexpr size_t arity = 2;
  static constexpr bool integers = true;
  static constexpr uint32_t shown = 0b11;
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
