// gelu(x) = x * Phi(x): exact by erf, or the tanh approximation (Hendrycks and Gimpel, 2016)
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Gelu : Pointwise {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}};
  struct Attrs {
    bool tanh = false;  ///< the approximation that GPT-2 used
  };
  /// With a = |x| and phi, Phi of the normal distribution: gelu(x) = max(x, 0) - a (1 - Phi(a)),
  /// and its slope at -a is one less that at a. So only the tail 1 - Phi(a) = e^(-a^2 / 2)
  /// mills_ratio(a) is computed, which keeps its digits however small it is; beyond `end` it rounds
  /// to 0. The approximation is x sigmoid(2 u(x)), whose tail is e^(-2 u(a)) / (1 + e^(-2 u(a))).
  template <class A>
  MINIM_HD static A size(A x, A end) {
    const A a = math::fabs(x);
    return math::select(a > end, end, a);
  }
  template <class A>
  static constexpr A kEnd = sizeof(A) == 4 ? 15 : 40;
  template <class A>
  static constexpr A kTanhEnd = A(sizeof(A) == 4 ? 11.2 : 22);

  template <class A>
  MINIM_HD static A twice_u(A a) {
    return A(1.59576912160573071176) * (a + A(0.044715) * a * a * a);
  }
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x) {
    A tail;
    if (attrs.tanh) {
      const A a = size(x, kTanhEnd<A>), e = math::exp_lifted(-twice_u(a));
      tail = a * e / (A(1) + e * A(math::kLower));
    } else {
      const A a = size(x, kEnd<A>);
      tail = math::exp_lifted(A(-0.5) * a * a) * (a * math::mills_ratio(a));
    }
    return math::select(x < A(0), A(-0.0), x) - tail * A(math::kLower);
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A, A x, A* d) {
    A tail;  // the slope at -a
    if (attrs.tanh) {
      const A a = size(x, kTanhEnd<A>), e = math::exp_lifted(-twice_u(a)),
              p = A(1) / (A(1) + e * A(math::kLower)),
              steep = A(1.59576912160573071176) * (a + A(3 * 0.044715) * a * a * a);
      tail = e * p * (A(1) - steep * p);
    } else {
      const A a = size(x, kEnd<A>);
      tail = math::exp_lifted(A(-0.5) * a * a) *
             (math::mills_ratio(a) - A(0.39894228040143267794) * a);
    }
    tail *= A(math::kLower);
    d[0] = g * math::select(x < A(0), tail, A(1) - tail);
  }
  static std::vector<Attrs> variants() { return {{}, {.tanh = true}}; }
};

}  // namespace minim::op
