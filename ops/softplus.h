// log(1 + e^(beta x)) / beta, without overflow; x itself where beta x > threshold, as in PyTorch
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Softplus : Pointwise {
  struct Attrs {
    double beta = 1, threshold = 20;
  };
  static constexpr Spec spec{
      .operands = {{"x"}},
      .saves = {.inputs = 0b1},
      .numbers = {number<&Attrs::beta>("beta"), number<&Attrs::threshold>("threshold")}};
  template <class A>
  MINIM_HD static A forward(const Attrs& a, A x) {
    const A z = A(a.beta) * x;
    const A soft =
        (math::select(z > A(0), z, A(0)) + math::log1p(math::exp_negative(-math::fabs(z)))) /
        A(a.beta);
    return math::select(z > A(a.threshold), x, soft);
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& a, A g, A, A x, A* d) {
    const A z = A(a.beta) * x;
    d[0] = g * math::select(z > A(a.threshold), A(1), math::sigmoid(z));
  }
  static std::vector<Attrs> variants() { return {{}, {.beta = 2.5, .threshold = 4}}; }
};

}  // namespace minim::op
