// the smaller of x and y; NaN if either is; equal operands each get half of the gradient
#pragma once
#include "minim/ops/maximum.h"

namespace minim::op {

struct Minimum : Maximum {
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x < y || x != x ? x : y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A z, A x, A y, A* d) {
    Maximum::vjp(g, z, -x, -y, d);
  }
};

}  // namespace minim::op
