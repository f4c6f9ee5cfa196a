// x != y as bool; true where either is NaN
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Ne : Comparison {
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return A(x != y);
  }
};

}  // namespace minim::op
