// optim/step.cpp -- a step of an optimizer: the look whether all gradients are finite, and the one
// pass that updates, beside its plain reference.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "minim/core/convert.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/core/per_isa.h"
#include "minim/core/pool.h"
#include "minim/core/random.h"
#include "minim/optim/clip.h"
#include "minim/optim/muon.h"
#include "minim/optim/optimizer.h"

namespace minim::optim {
namespace {

constexpr Index kBlock = 512;

/// Rounds up with the probability of the remainder. `random` has 16 bits.
bf16 round_stochastically(float v, uint32_t random) {
  if (!std::isfinite(v)) return bf16(v);
  return bf16::from_bits(uint16_t((bits<uint32_t>(v) + random) >> 16));
}

/// Up to kBlock values of a parameter and its master, of which the parameter is the rounding unless
/// somebody else wrote it since: there the master takes what was written, and elsewhere it keeps
/// its fraction. Says whether there is such a place; looks no further without `take`.
bool adopt(const void* param, DType dtype, float* master, Index n, bool take = true) {
  uint16_t rounded[kBlock];
  (dtype == DType::f16 ? isa().narrow_f16 : isa().narrow_bf16)(master, rounded, n);
  if (std::memcmp(rounded, param, size_t(n) * sizeof *rounded) == 0) return false;
  const auto* written = static_cast<const uint16_t*>(param);
  float values[kBlock];
  load_run(param, dtype, 1, n, values);
  for (Index j = 0; j < n && take; ++j)
    if (written[j] != rounded[j]) master[j] = values[j];
  return true;
}
bool adopt(const Tensor& param, const Tensor& master, bool take = true) {
  const Index n = param.numel();
  bool any = false;
  for (Index at = 0; at < n && (take || !any); at += kBlock)
    any |= adopt(advance(std::as_const(param).data(), param.dtype(), at), param.dtype(),
                 static_cast<float*>(master.data()) + at, std::min(kBlock, n - at), take);
  return any;
}

void check_connected(const Rule& rule, const std::vector<Tensor>& params,
                     const std::vector<Tensor>& grads) {
  if (std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); })) return;
  constexpr size_t kShown = 8;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, params.size()); ++i)
    names += (i ? ", " : "") + amp::label(params[i], i);
  fail("[", rule.name, "] 0 of ", params.size(), " parameters have a gradient (", names,
       params.size() > kShown ? ", ..." : "",
       "): is the loss made from them, and was backward() called after zero_grad()?");
}

/// Calls f with the rule as a function of one element.
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

/// The weights w, the gradient g and the states of n elements.
template <class A>
struct Elements {
  A* w;
  const A* g;
  A* states[3];
  A inverse_scale, clip;
};
template <class A, class Rule>
struct UpdateLoop {
  static void run(const Constants<A>* from, const Elements<A>* at, Index n) {
    const Constants<A> c = *from;  // a branch on a local one is taken out of the loop
    const auto [w, g, states, inverse_scale, clip] = *at;
    A *m = states[0], *v = states[1], *top = states[2];
    MINIM_IVDEP
    for (Index j = 0; j < n; ++j)
      w[j] = Rule{}(c, w[j], g[j] * inverse_scale * clip, m[j], v[j], top[j]);
  }
};

}  // namespace

template <class A>
Constants<A> Optimizer::constants(size_t i) const {
  const ParamGroup& group = groups_[slots_[i].group];
  const Rule& rule = *group.rule;
  double lr = this->lr(slots_[i].group), decay = *group.weight_decay;
  double t = double(counter(slots_[i].steps));
  const auto [beta1, beta2] = options_.betas;
  Constants<A> c;
  c.keep = A(rule.decoupled ? 1 - lr * decay : 1.0);
  c.l2 = A(rule.decoupled ? 0.0 : decay);
  c.momentum = A(options_.momentum.value_or(rule.momentum));
  c.nesterov = options_.nesterov;
  c.amsgrad = options_.amsgrad;
  c.rate = A(rule.kind == Kind::adam   ? lr / (1 - std::pow(beta1, t))
             : rule.kind == Kind::muon ? lr * muon_scale(params_[i], options_.match_adamw_rms)
                                       : lr);
  c.one_minus_beta1 = A(1 - beta1);
  c.beta2 = A(beta2);
  c.one_minus_beta2 = A(1 - beta2);
  c.root2 = A(std::sqrt(1 - std::pow(beta2, t)));
  c.eps = A(options_.eps);
  return c;
}

/// Writes elements [begin, begin + n) of a parameter that is not itself of type A.
template <class A>
void Optimizer::store(size_t i, Index begin, Index n, const A* values) const {
  const Tensor& p = params_[i];
  if (!options_.stochastic_rounding || p.dtype() != DType::bf16)
    return store_run(advance(p.data(), p.dtype(), begin), p.dtype(), 1, n, values);
  bf16* to = static_cast<bf16*>(p.data());
  // Element e of parameter i at step t has draw e of a stream of its own: eight 16-bit draws to a
  // Philox block.
  uint64_t stream =
      random_stream(RandomUse::rounding, uint64_t(counter(slots_[i].steps)) << 20 | i);
  std::array<uint32_t, 4> block{};
  for (Index e = begin; e < begin + n; ++e) {
    if (e == begin || e % 8 == 0) block = Philox::block(options_.seed, stream, uint64_t(e) / 8);
    to[e] = round_stochastically(float(values[e - begin]),
                                 block[size_t(e % 8) / 2] >> 16 * (e % 2) & 0xffffu);
  }
}

template <class A>
void Optimizer::update(size_t i, const Tensor& grad, Index begin, Index end,
                       const amp::Factors& factors) const {
  const Slot& slot = slots_[i];
  const Tensor& wide = slot.master.defined() ? slot.master : params_[i];
  const Constants<A> c = constants<A>(i);
  A weights[kBlock], gradients[kBlock], spare[3][kBlock] = {};
  for (Index at = begin; at < end; at += kBlock) {
    const Index n = std::min(kBlock, end - at);
    Elements<A> e{weights,
                  load_run(advance(std::as_const(grad).data(), grad.dtype(), at), grad.dtype(), 1,
                           n, gradients),
                  {},
                  A(factors.inverse_scale),
                  A(factors.clip)};
    if (wide.dtype() == dtype_for<A>())
      e.w = static_cast<A*>(wide.data()) + at;
    else
      load_run(advance(wide.data(), wide.dtype(), at), wide.dtype(), 1, n, weights);
    if constexpr (std::is_same_v<A, float>)
      if (slot.master.defined())
        adopt(advance(std::as_const(params_[i]).data(), params_[i].dtype(), at), params_[i].dtype(),
              e.w, n);
    for (size_t k = 0; k < 3; ++k)
      e.states[k] =
          slot.states[k].defined() ? static_cast<A*>(slot.states[k].data()) + at : spare[k];
    with_rule<A>(rule_of(i).kind, [&]<class Rule>(Rule) {
      per_isa<A, UpdateLoop<A, Rule>>(&c, static_cast<const Elements<A>*>(&e), n);
    });
    if (params_[i].dtype() != dtype_for<A>()) store(i, at, n, e.w);
  }
}

template <class A>
void Optimizer::update_reference(size_t i, const Tensor& grad, const amp::Factors& factors,
                                 A* room) const {
  const Slot& slot = slots_[i];
  const Tensor& wide = slot.master.defined() ? slot.master : params_[i];
  const Constants<A> c = constants<A>(i);
  if (slot.master.defined()) adopt(params_[i], slot.master);
  const Index n = grad.numel();
  auto widened = [&](const Tensor& t) {
    A* values = std::exchange(room, room + n);
    if (!t.defined()) return std::fill_n(values, n, A(0)), values;
    const A* from = load_run(std::as_const(t).data(), t.dtype(), 1, n, values);
    if (from != values) std::copy_n(from, n, values);
    return values;
  };
  auto written = [n](const A* values, const Tensor& t) {
    if (t.defined()) store_run(t.data(), t.dtype(), 1, n, values);
  };
  A *w = widened(wide), *g = widened(grad), *s[3];
  for (size_t k = 0; k < 3; ++k) s[k] = widened(slot.states[k]);
  for (Index j = 0; j < n; ++j) g[j] *= A(factors.inverse_scale);
  for (Index j = 0; j < n; ++j) g[j] *= A(factors.clip);
  with_rule<A>(rule_of(i).kind, [&](auto rule) {
    for (Index j = 0; j < n; ++j) w[j] = rule(c, w[j], g[j], s[0][j], s[1][j], s[2][j]);
  });
  for (size_t k = 0; k < 3; ++k) written(s[k], slot.states[k]);
  written(w, slot.master);
  store(i, 0, n, w);
}

Tensor Optimizer::master(size_t i) const {
  const Tensor& own = slots_.at(i).master;
  if (!own.defined() || is_averaged(params_[i]) || !adopt(params_[i], own, false)) return own;
  Tensor now = empty(own.shape(), own.dtype(), own.device());
  copy_elements(own, now);
  adopt(params_[i], now);
  return now;
}

StepResult Optimizer::step(const StepRequest& request) try {
  if (!(request.clip >= 0 && std::isfinite(request.clip)))
    fail("[", rule_.name, "] clip is what gradients are multiplied by, in [0, inf), not ",
         request.clip);
  if (std::ranges::any_of(params_, is_averaged))
    fail("[", rule_.name,
         "] averages stand in for the weights, which come back when the Swap ends and would undo "
         "this step; end it first");
  std::vector<Tensor> grads = amp::dense_gradients(params_);
  check_connected(rule_, params_, grads);
  amp::check_scale(params_, request.scale, "step");
  amp::Factors factors{amp::inverse_of(request.scale), request.clip};
  StepResult result;
  if (request.max_norm) {
    result.norm = norm_of(grads, 2, factors.inverse_scale);
    factors.clip = clip_coefficient(result.norm, *request.max_norm);
  }
  const bool seen = request.max_norm && std::isfinite(result.norm);  // then all are finite
  const amp::FirstBad bad = seen ? amp::FirstBad{} : amp::first_nonfinite(grads, factors);
  result.kind = bad.kind;
  if (bad.kind != amp::Finite::yes) result.first_bad = amp::label(params_[bad.index], bad.index);
  result.found_inf = bad.kind != amp::Finite::yes;
  if (request.agree) result.found_inf = request.agree(result.found_inf);
  result.scale_before = result.scale_after = request.scale;
  result.stepped = !result.found_inf;
  if (result.stepped) apply(grads, factors);
  return result;
} catch (const std::bad_alloc&) {
  pool::fail_full(rule_.name);
}

void Optimizer::apply(std::vector<Tensor> grads, amp::Factors factors) {
  if (options_.maximize) factors.inverse_scale = -factors.inverse_scale;
  std::vector<amp::Factors> left(grads.size(), factors);  // for the pass over elements
  const std::vector<amp::Chunk> chunks = amp::chunks_of(grads);
  // What needs memory comes first, as it may run out: until then nothing is changed.
  std::vector<Tensor> momenta(grads.size());
  Index most = 0;
  for (const Tensor& g : grads) most = std::max(most, g.defined() ? g.numel() : 0);
  std::vector<std::byte> room(options_.fused ? 0 : 5 * sizeof(double) * size_t(most));
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined() || rule_of(i).kind != Kind::muon) continue;
    const double beta = options_.momentum.value_or(rule_of(i).momentum);
    std::tie(grads[i], momenta[i]) =
        muon_direction(grads[i], std::exchange(left[i], {}), slots_[i].states[0], beta);
  }
  ++counter(applied_);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].defined()) ++counter(slots_[i].steps);
    if (momenta[i].defined()) copy_elements(std::exchange(momenta[i], {}), slots_[i].states[0]);
  }
  auto in_its_type = [&](size_t i, auto&& f) {
    params_[i].dtype() == DType::f64 ? f(detail::Tag<double>{}) : f(detail::Tag<float>{});
  };
  if (options_.fused) {
    parallel_for(Index(chunks.size()), 1, [&](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) {
        const amp::Chunk& c = chunks[size_t(k)];
        in_its_type(c.tensor, [&]<class A>(detail::Tag<A>) {
          update<A>(c.tensor, grads[c.tensor], c.begin, c.end, left[c.tensor]);
        });
      }
    });
  } else {
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined())
        in_its_type(i, [&]<class A>(detail::Tag<A>) {
          update_reference<A>(i, grads[i], left[i], reinterpret_cast<A*>(room.data()));
        });
  }
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) params_[i].bump_version();
}

}  // namespace minim::optim
