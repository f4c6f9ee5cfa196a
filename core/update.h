// core/update.h -- the update rules, one element at a time, for host and device: p, its gradient g
// and its state in, all of them in the compute type. Constants are made in double, once per
// parameter and step.
//   sgd    Sutskever et al., "On the importance of initialization and momentum in deep learning"
//          (2013)
//   adam   Kingma and Ba, "Adam: a method for stochastic optimization" (2015); decay is part of the
//          gradient. amsgrad: Reddi et al., "On the convergence of Adam and beyond" (2018)
//   adamw  Loshchilov and Hutter, "Decoupled weight decay regularization" (2019)
#pragma once
#include <array>
#include <cstdint>
#include <limits>

#include "minim/core/math.h"

namespace minim::optim {

enum class Kind : uint8_t { sgd, adam, muon };

template <class A>
struct Constants {
  A keep = 1;  ///< what decoupled decay leaves of p: 1 - lr * weight_decay
  A l2 = 0;    ///< decay that is part of the gradient
  A beta2 = 0, one_minus_beta1 = 0, one_minus_beta2 = 0;
  A root2 = 1;  ///< sqrt(1 - beta2^t)
  A eps = 0;
  A rate = 0;  ///< lr; for Adam lr / (1 - beta1^t)
  A momentum = 0;
  bool nesterov = false, amsgrad = false;

  template <class B>
  Constants<B> to() const {
    return {B(keep),  B(l2),  B(beta2), B(one_minus_beta1), B(one_minus_beta2),
            B(root2), B(eps), B(rate),  B(momentum),        nesterov,
            amsgrad};
  }
};

/// From a towards b by a share of the way; exactly b where the share is 1. For numbers and tensors.
template <class X, class W>
MINIM_HD inline X lerp(X a, X b, W share) {
  return share < W(0.5) ? a + (b - a) * share : b - (b - a) * (W(1) - share);
}

/// Adam with decoupled decay; with keep = 1 and l2 set, plain Adam. m is the first moment, v the
/// second, top the largest v so far.
template <class A>
MINIM_HD inline A adam_update(const Constants<A>& c, A p, A g, A& m, A& v, A& top) {
  p *= c.keep;
  g += c.l2 * p;
  m = lerp(m, g, c.one_minus_beta1);
  v = v * c.beta2 + c.one_minus_beta2 * g * g;
  top = c.amsgrad && top > v ? top : v;
  return p - c.rate * m / (math::sqrt(top) / c.root2 + c.eps);
}

/// Gradient descent; m is the velocity.
template <class A>
MINIM_HD inline A sgd_update(const Constants<A>& c, A p, A g, A& m) {
  g += c.l2 * p;
  m = c.momentum * m + g;
  return p - c.rate * (c.nesterov ? g + c.momentum * m : m);
}

/// Muon's last part; g is the direction that muon_direction() made (optim/muon.h).
template <class A>
MINIM_HD inline A muon_update(const Constants<A>& c, A p, A g) {
  return p * c.keep - c.rate * g;
}

/// Calls f with the rule as a function of one element and its state.
template <class A, class F>
void with_rule(Kind kind, F&& f) {
  using C = const Constants<A>&;
  if (kind == Kind::adam)
    f([](C c, A p, A g, A& m, A& v, A& top) { return adam_update(c, p, g, m, v, top); });
  else if (kind == Kind::sgd)
    f([](C c, A p, A g, A& m, A&, A&) { return sgd_update(c, p, g, m); });
  else
    f([](C c, A p, A g, A&, A&, A&) { return muon_update(c, p, g); });
}

/// v as bf16, rounded up with the probability of the remainder; `random` has 16 bits.
MINIM_HD inline bf16 round_stochastically(float v, uint32_t random) {
  if (!(math::fabs(v) <= std::numeric_limits<float>::max())) return bf16(v);
  return bf16::from_bits(uint16_t((bits<uint32_t>(v) + random) >> 16));
}
/// The bits that element e of a parameter is rounded by: eight of a Philox block.
MINIM_HD inline uint32_t rounding_bits(const std::array<uint32_t, 4>& block, uint64_t e) {
  return block[e % 8 / 2] >> 16 * (e % 2) & 0xffffu;
}

}  // namespace minim::optim
