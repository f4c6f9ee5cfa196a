// target * (log(target) - x), of log-probabilities x against probabilities `target`, or with
// log_target against their logarithms: e^target * (target - x). Where a probability is 0 so is its
// term. Reduction::batchmean gives the divergence itself (Kullback and Leibler, 1951), one per
// entry of the first axis, averaged.
#pragma once
#include "minim/ops/pair_loss_struct.h"

namespace minim::op {

struct Divergence : Pointwise {
  static constexpr const char* name = "kl_div";
  static constexpr Spec spec{.operands = {{"x"}, {"target"}}};
  struct Attrs {
    Reduction reduction = Reduction::mean;
    bool log_target = false;
  };
  static std::vector<Attrs> variants() { return {{}, {.log_target = true}}; }
  template <class A>
  struct Target {
    A p, log;  // p: its square root where it may be smaller than any number
    bool rooted;
    MINIM_HD Target(const Attrs& attrs, A target)
        : p(attrs.log_target ? math::exp(A(0.5) * target) : target),
          log(attrs.log_target ? target : math::log(target)),
          rooted(attrs.log_target) {}
    MINIM_HD A times(A v) const { return p * (rooted ? p * v : v); }
  };
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x, A target) {
    const Target<A> t(attrs, target);
    return t.p == A(0) ? A(0) : t.times(t.log - x);
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A, A x, A target, A* d) {
    const Target<A> t(attrs, target);
    const A rise = A(1) + t.log - x, slope = t.rooted ? t.times(rise) : rise;
    d[0] = -t.times(g);
    d[1] = t.p == A(0) ? A(0) : g * slope;
  }
};
struct KlDiv : PairLoss<Divergence> {
  static constexpr Spec spec{
      .operands = {{"x"}, {"target", Accepts::floating, Domain::probability}},
      .saves = {.inputs = 0b11},
      .result = Result::f32,
      .infer = infer};
};

}  // namespace minim::op
