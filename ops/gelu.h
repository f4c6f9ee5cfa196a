// gelu(x) = x * Phi(x): exact by erf, or the tanh approximation (Hendrycks and Gimpel, 2016)
#pragma once
#include "minim/ops/op_struct.h"

namespace minim::op {

struct Gelu {
  static constexpr size_t arity = 1;
  static constexpr Saves saves{.inputs = 0b1};
  struct Attrs {
    bool tanh = false;  ///< the approximation that GPT-2 used
  };
  template <class A>
  MINIM_HD static A inner(A x) {
    return A(0.79788456080286535588) * (x + A(0.044715) * x * x * x);
  }
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x) {
    if (attrs.tanh) return A(0.5) * x * (A(1) + math::tanh(inner(x)));
    return A(0.5) * x * (A(1) + math::erf(x * A(0.70710678118654752440)));
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A, A x, A* d) {
    if (attrs.tanh) {
      A t = math::tanh(inner(x)),
        slope = A(0.79788456080286535588) * (A(1) + A(3 * 0.044715) * x * x);
      d[0] = g * A(0.5) * (A(1) + t + x * (A(1) - t * t) * slope);
    } else {
      A phi = A(0.39894228040143267794) * math::exp_negative(A(-0.5) * x * x);
      d[0] = g * (A(0.5) * (A(1) + math::erf(x * A(0.70710678118654752440))) + x * phi);
    }
  }
  static std::vector<Attrs> variants() { return {{}, {.tanh = true}}; }
};

}  // namespace minim::op
