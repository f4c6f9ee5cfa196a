// x - y; not of bool and bool
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Sub : Pointwise {
  static void infer(OpArgs& args) {
    if (args.dtype == DType::boolean)
      fail("[sub] bool minus bool is no bool; x != y says where they differ");
    args.out[0].shape = broadcast(args.in[0].shape, args.in[1].shape, "broadcast");
  }
  static constexpr Spec spec{
      .operands = {{"x"}, {"y"}}, .integers = true, .shown = 0b11, .infer = infer};
  template <class A>
  MINIM_HD static A forward(A x, A y) {
    return x - y;
  }
  template <class A>
  MINIM_HD static void vjp(A g, A, A, A, A* d) {
    d[0] = g;
    d[1] = -g;
  }
};

}  // namespace minim::op
