// silu(x) = x * sigmoid(x), also called swish (Elfwing et al., 2017)
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Silu : Unary<Silu> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}};
  /// With a = |x|: max(x, 0) - a sigmoid(-a), and the slope at -a is one less that at a, so the
  /// tail keeps its digits; beyond `end` it rounds to 0.
  template <class A>
  MINIM_HD static A size(A x) {
    constexpr A end = sizeof(A) == 4 ? 120 : 800;
    const A a = math::fabs(x);
    return math::select(a > end, end, a);
  }
  template <class A>
  MINIM_HD static A forward(A x) {
    const A a = size(x), e = math::exp_lifted(-a);
    const A tail = a * e / (A(1) + e * A(math::kLower)) * A(math::kLower);
    return math::select(x < A(0), A(-0.0), x) - tail;
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    const A a = size(x), e = math::exp_lifted(-a), p = A(1) / (A(1) + e * A(math::kLower));
    const A tail = e * p * (A(1) - a * p) * A(math::kLower);
    return math::select(x < A(0), tail, A(1) - tail);
  }
};

}  // namespace minim::op
