// limits x to [lo, hi], min(max(x, lo), hi): where lo > hi, to hi; slope 1 inside, 0 at a finite
// bound and outside; NaN stays NaN. @throws Error for a bound that is NaN, or finite and beyond the
// result's dtype.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Clamp : Pointwise {
  struct Attrs {
    double lo = -std::numeric_limits<double>::infinity(),
           hi = std::numeric_limits<double>::infinity();
  };
  template <class A>
  MINIM_HD static A forward(const Attrs& a, A x) {
    x = x < A(a.lo) ? A(a.lo) : x;
    return x > A(a.hi) ? A(a.hi) : x;
  }
  static void infer(OpArgs& args) {
    const auto& a = args.attrs.as<Attrs>();
    if (std::isnan(a.lo) || std::isnan(a.hi))
      fail("[clamp] the bounds ", a.lo, " and ", a.hi, " must be numbers, or infinite for none");
    args.out[0].shape = args.in[0].shape;
  }
  static constexpr Spec spec{
      .operands = {{"x", Accepts::floating, Domain::off_zero}},
      .saves = {.inputs = 0b1},
      .numbers = {number<&Attrs::lo>("lo", true), number<&Attrs::hi>("hi", true)},
      .infer = infer};
  template <class A>
  MINIM_HD static void vjp(const Attrs& a, A g, A, A x, A* d) {
    constexpr A inf = std::numeric_limits<A>::infinity();
    const A lo = A(a.lo), hi = A(a.hi);
    d[0] = (x > lo || lo == -inf) && (x < hi || hi == inf) ? g : A(0);
  }
  static std::vector<Attrs> variants() { return {{-1, 0.75}}; }
};

}  // namespace minim::op
