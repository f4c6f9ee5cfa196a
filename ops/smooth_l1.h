// e^2 / (2 beta) for |e| < beta and |e| - beta / 2 beyond, e = x - target (Girshick, "Fast R-CNN",
// 2015); beta = 0 is l1. @throws Error for a negative beta.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct SmoothAbsoluteError : Pointwise {
  static constexpr const char* name = "smooth_l1";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  struct Attrs {
    Reduction reduction = Reduction::mean;
    double beta = 1;
  };
  static std::vector<Attrs> variants() { return {{}, {.beta = 0.25}, {.beta = 0}}; }
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x, A target) {
    const A e = math::fabs(x - target), beta = A(attrs.beta);
    return e < beta ? A(0.5) * e * (e / beta) : e - A(0.5) * beta;
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A, A x, A target, A* d) {
    const A e = x - target, beta = A(attrs.beta);
    d[0] = g * (math::fabs(e) < beta ? e / beta : math::sign(e));
    d[1] = -d[0];
  }
};
struct SmoothL1 : PairLoss<SmoothAbsoluteError> {
  static void infer(OpArgs& args) {
    if (const double beta = args.attrs.as<Attrs>().beta; !(beta >= 0))
      fail("[smooth_l1] beta is ", beta, "; it must be 0 or more");
    PairLoss::infer(args);
  }
  static constexpr Spec spec{.operands = {{"x"}, {"target"}},
                             .saves = {.inputs = 0b11},
                             .result = Result::f32,
                             .numbers = {number<&Attrs::beta>("beta")},
                             .infer = infer};
};

}  // namespace minim::op
