// x - y; not of bool and bool
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Sub {
  static constexpr size_t arity = 2;
  static constexpr bool integers = true;
  static constexpr uint32_t shown = 0b11;
  static void infer(OpArgs& args) {
    if (args.dtype == DType::boolean)
      fail("[sub] bool minus bool is no bool; x != y says where they differ");
    args.out[0].shape = broadcast(args.in[0].shape, args.in[1].shape, "broadcast");
  }
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
