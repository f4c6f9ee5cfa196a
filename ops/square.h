// x * x
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Square : Unary<Square> {
  static constexpr bool integers = true;
  static constexpr Saves saves{.inputs = 0b1};
  template <class A>
  MINIM_HD static A forward(A x) {
    return x * x;
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return A(2) * x;
  }
};

}  // namespace minim::op
