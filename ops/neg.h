// -x; not of bool
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Neg : Unary<Neg> {
  static constexpr bool integers = true;
  static void infer(OpArgs& args) {
    if (args.dtype == DType::boolean) fail("[neg] bool has no negative; x == false turns it");
    args.out[0].shape = args.in[0].shape;
  }
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
