// The update of an optimizer, element by element.
#include <cstring>

#include "minim/core/convert.h"
#include "minim/core/plain/verbs.h"
#include "minim/core/random.h"

namespace minim::plain {
namespace {

using optim::Update;

template <class A>
A value(const Flat& x, Index e) {
  A v;
  return *load_run(advance(static_cast<const void*>(x.data), x.dtype, e), x.dtype, 1, 1, &v);
}
template <class A>
void store(const Flat& x, Index e, A v) {
  store_run(advance(x.data, x.dtype, e), x.dtype, 1, 1, &v);
}

/// What is updated: the master, unless the parameter is no longer its rounding.
float from_master(const Update& u, Index e) {
  return visit(u.param.dtype, [&]<class T>(detail::Tag<T>) {
    const T written = static_cast<const T*>(u.param.data)[e], rounded = convert_to<T>(u.master[e]);
    return std::memcmp(&written, &rounded, sizeof(T)) == 0 ? u.master[e] : float(written);
  });
}

template <class A>
void update_element(const Update& u, Index e) {
  A w = u.master ? A(from_master(u, e)) : value<A>(u.param, e), s[3] = {};
  for (size_t k = 0; k < 3; ++k)
    if (u.states[k]) s[k] = static_cast<A*>(u.states[k])[e];
  const A g = value<A>(u.grad, e) * A(u.factors.inverse_scale) * A(u.factors.clip);
  optim::with_rule<A>(u.kind,
                      [&](auto rule) { w = rule(u.constants.to<A>(), w, g, s[0], s[1], s[2]); });
  for (size_t k = 0; k < 3; ++k)
    if (u.states[k]) static_cast<A*>(u.states[k])[e] = s[k];
  if (u.master) u.master[e] = float(w);
  if (!u.stochastic) return store(u.param, e, w);
  const auto block = Philox::block(u.seed, u.stream, uint64_t(e) / 8);
  static_cast<bf16*>(u.param.data)[e] =
      optim::round_stochastically(float(w), optim::rounding_bits(block, uint64_t(e)));
}

}  // namespace

void update(std::span<const Update> updates) {
  for (const Update& u : updates)
    for (Index e = 0; e < u.grad.n; ++e)
      u.param.dtype == DType::f64 ? update_element<double>(u, e) : update_element<float>(u, e);
}

}  // namespace minim::plain
