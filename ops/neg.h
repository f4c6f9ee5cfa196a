// -x
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Neg : Unary<Neg> {
  static constexpr bool integers = true;
  static constexpr Saves saves{};
  template <class A>
  MINIM_HD static A forward(A x) {
    return -x;
  }
  template <class A>
  MINIM_HD static A slope(A, A) {
    return A(-1);
  }
};

}  // namespace minim::op
