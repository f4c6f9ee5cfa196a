// x > y as bool; false where either is NaN
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Gt : Comparison {
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return A(x > y);
  }
};

}  // namespace minim::op
