// hyperbolic tangent
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Tanh : Unary<Tanh> {
  static constexpr Saves saves{.outputs = 0b1};
  template <class A>
  MINIM_HD static A forward(A x) {
    return math::tanh(x);
  }
  template <class A>
  MINIM_HD static A slope(A, A y) {
    return (A(1) - y) * (A(1) + y);
  }
};

}  // namespace minim::op
