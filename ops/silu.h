// silu(x) = x * sigmoid(x), also called swish (Elfwing et al., 2017)
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Silu : Unary<Silu> {
  static constexpr Saves saves{.inputs = 0b1};
  template <class A>
  MINIM_HD static A forward(A x) {
    return x / (A(1) + math::exp(-x));
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    A s = A(1) / (A(1) + math::exp(-x));
    return s * (A(1) + x * (A(1) - s));
  }
};

}  // namespace minim::op
