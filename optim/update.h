// optim/update.h -- the update rules, one element at a time, for host and device: p, its gradient g
// and its state in, all of them in the compute type. Constants are made in double, once per
// parameter and step.
//   sgd    Sutskever et al., "On the importance of initialization and momentum in deep learning"
//   (2013) adam   Kingma and Ba, "Adam: a method for stochastic optimization" (2015); decay is part
//   of the gradient adamw  Loshchilov and Hutter, "Decoupled weight decay regularization" (2019)
#pragma once
#include "minim/core/math.h"

namespace minim::optim {

template <class A>
struct Constants {
  A keep = 1;  ///< what decoupled decay leaves of p: 1 - lr * weight_decay
  A l2 = 0;    ///< decay that is part of the gradient
  A beta2 = 0, one_minus_beta1 = 0, one_minus_beta2 = 0;
  A root2 = 1;  ///< sqrt(1 - beta2^t)
  A eps = 0;
  A rate = 0;  ///< lr; for Adam lr / (1 - beta1^t)
  A momentum = 0;
  bool nesterov = false;
};

/// Adam with decoupled decay; with keep = 1 and l2 set, plain Adam. m is the first moment, v the
/// second.
template <class A>
MINIM_HD inline A adamw_update(const Constants<A>& c, A p, A g, A& m, A& v) {
  p *= c.keep;
  g += c.l2 * p;
  // Written so that m becomes g exactly where the weight is 1.
  m = c.one_minus_beta1 < A(0.5) ? m + c.one_minus_beta1 * (g - m)
                                 : g - (g - m) * (A(1) - c.one_minus_beta1);
  v = v * c.beta2 + c.one_minus_beta2 * g * g;
  return p - c.rate * m / (math::sqrt(v) / c.root2 + c.eps);
}

/// Gradient descent; m is the velocity.
template <class A>
MINIM_HD inline A sgd_update(const Constants<A>& c, A p, A g, A& m, A&) {
  g += c.l2 * p;
  m = c.momentum * m + g;
  return p - c.rate * (c.nesterov ? g + c.momentum * m : m);
}

}  // namespace minim::optim
