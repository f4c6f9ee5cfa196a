// -x; not of bool
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Neg : Unary<Neg> {
  static void infer(OpArgs& args) {
    if (args.dtype == DType::boolean) fail("[neg] bool has no negative; x == false turns it");
    args.out[0].shape = args.in[0].shape;
  }
  static constexpr Spec spec{.operands = {{"x"}}, .integers = true, .infer = infer};
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
