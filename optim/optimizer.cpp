#include "minim/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "minim/autograd/node.h"
#include "minim/core/convert.h"
#include "minim/core/random.h"

namespace minim::optim {
namespace {

constexpr Index kBlock = 256;

void check_range(const Rule& rule, const char* what, double v, double end) {
  if (!(v >= 0 && v < end)) fail("[", rule.name, "] ", what, " must be in [0, ", end, "), not ", v);
}

void check_options(const Rule& rule, const Options& o) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Options usual;
  check_range(rule, "lr", o.lr, inf);
  check_range(rule, "eps", o.eps, inf);
  check_range(rule, "betas[0]", o.betas[0], 1);
  check_range(rule, "betas[1]", o.betas[1], 1);
  check_range(rule, "momentum", o.momentum, inf);
  check_range(rule, "weight_decay", o.weight_decay.value_or(0), inf);
  if (rule.adaptive && (o.momentum != 0 || o.nesterov))
    fail("[", rule.name, "] has betas, not momentum or nesterov");
  if (!rule.adaptive && (o.betas != usual.betas || o.eps != usual.eps))
    fail("[", rule.name, "] has momentum, not betas or eps");
  if (o.nesterov && o.momentum == 0) fail("[", rule.name, "] nesterov needs momentum > 0");
  if (int(o.masters) + int(o.stochastic_rounding) + int(o.allow_plain_half) > 1)
    fail("[", rule.name,
         "] masters, stochastic_rounding and allow_plain_half exclude each other: choose one");
}

void check_storage(const Rule& rule, const Options& o, const Tensor& p, const std::string& label) {
  if (!p.defined()) fail("[", rule.name, "] ", label, " is undefined");
  if (!is_floating(p.dtype()) || !p.is_contiguous())
    fail("[", rule.name, "] ", label, " is ", name_of(p.dtype()), p.shape(),
         p.is_contiguous() ? "" : ", a strided view", "; parameters are dense floating tensors");
  if (!is_half(p.dtype()) || o.masters || o.allow_plain_half) return;
  if (!o.stochastic_rounding)
    fail("[", rule.name, "] ", label, " is stored in ", name_of(p.dtype()),
         " (a module's to() converts its parameters), where updates below half an ulp are lost; "
         "keep it in f32 and use "
         "Autocast, or set masters = true, or stochastic_rounding = true (bf16), or "
         "allow_plain_half = true");
  if (p.dtype() != DType::bf16)
    fail("[", rule.name, "] ", label,
         " is f16: stochastic rounding needs bf16's range; set masters = true");
}

/// Rounds up with the probability of the remainder. `random` has 16 bits.
bf16 round_stochastically(float v, uint32_t random) {
  if (!std::isfinite(v)) return bf16(v);
  return bf16::from_bits(uint16_t((bits<uint32_t>(v) + random) >> 16));
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

}  // namespace

const Rule& rule_named(std::string_view name) {
  for (const Rule* r : {&kSGD, &kAdam, &kAdamW})
    if (name == r->name) return *r;
  fail("'", name, "' is no optimizer; known: sgd adam adamw");
}

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, const Options& options)
    : rule_(rule), options_(options), groups_(std::move(groups)), applied_(zeros({}, DType::i64)) {
  check_options(rule, options);
  for (size_t g = 0; g < groups_.size(); ++g) {
    ParamGroup& group = groups_[g];
    group.lr = group.lr.value_or(options.lr);
    group.weight_decay =
        group.weight_decay.value_or(options.weight_decay.value_or(rule.weight_decay));
    check_range(rule, "a group's lr", *group.lr, std::numeric_limits<double>::infinity());
    check_range(rule, "a group's weight_decay", *group.weight_decay,
                std::numeric_limits<double>::infinity());
    for (const Tensor& p : group.params) add_parameter(p, g);
  }
  if (params_.empty()) fail("[", rule.name, "] was given no parameters");
}

void Optimizer::add_parameter(const Tensor& p, size_t group) {
  std::string label = amp::label(p, params_.size());
  check_storage(rule_, options_, p, label);
  for (const Tensor& other : params_)
    if (other.impl() == p.impl()) fail("[", rule_.name, "] ", label, " was given twice");
  DType wide = promote_types(p.dtype(), DType::f32);
  Slot slot{group, {}, {}, zeros({}, DType::i64)};
  if (options_.masters && is_half(p.dtype())) {
    MemoryScope kind(MemoryKind::masters);
    slot.master = empty(p.shape(), wide, p.device());
    copy_elements(p, slot.master);
  }
  MemoryScope kind(MemoryKind::moments);
  for (size_t k = 0; k < 2; ++k)
    if (rule_.adaptive || (k == 0 && options_.momentum != 0))
      slot.states[k] = zeros(p.shape(), wide, p.device());
  params_.push_back(p);
  slots_.push_back(std::move(slot));
}

void Optimizer::zero_grad() {
  for (const Tensor& p : params_) p.set_grad({});
}

void Optimizer::set_lr(double lr) {
  check_range(rule_, "lr", lr, std::numeric_limits<double>::infinity());
  for (ParamGroup& g : groups_) g.lr = lr;
}

void Optimizer::set_master(size_t i, const Tensor& values) {
  const Slot& slot = slots_.at(i);
  if (!slot.master.defined())
    fail("[", rule_.name, "] ", amp::label(params_[i], i), " has no fp32 master");
  if (is_half(values.dtype()))
    fail("[", rule_.name, "] a master's values must be f32 or f64, not ", name_of(values.dtype()));
  copy_elements(values, slot.master);
  copy_elements(slot.master, params_[i]);
  params_[i].bump_version();
}

template <class A>
Constants<A> Optimizer::constants(const Slot& slot) const {
  double lr = *groups_[slot.group].lr, decay = *groups_[slot.group].weight_decay,
         t = double(counter(slot.steps));
  const auto [beta1, beta2] = options_.betas;
  Constants<A> c;
  c.keep = A(rule_.decoupled ? 1 - lr * decay : 1.0);
  c.l2 = A(rule_.decoupled ? 0.0 : decay);
  c.momentum = A(options_.momentum);
  c.nesterov = options_.nesterov;
  c.rate = A(rule_.adaptive ? lr / (1 - std::pow(beta1, t)) : lr);
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

template <class A, class F>
void Optimizer::for_rule(F&& f) const {
  using C = const Constants<A>&;
  if (rule_.adaptive)
    f([](C c, A p, A g, A& m, A& v) { return adamw_update(c, p, g, m, v); });
  else
    f([](C c, A p, A g, A& m, A& v) { return sgd_update(c, p, g, m, v); });
}

template <class A>
void Optimizer::update(size_t i, const Tensor& grad, Index begin, Index end,
                       const amp::Factors& factors) const {
  const Slot& slot = slots_[i];
  const Tensor& wide = slot.master.defined() ? slot.master : params_[i];
  const Constants<A> c = constants<A>(slot);
  const A inverse_scale = A(factors.inverse_scale), clip = A(factors.clip);
  A weights[kBlock], gradients[kBlock], spare[2][kBlock] = {};
  for (Index at = begin; at < end; at += kBlock) {
    Index n = std::min(kBlock, end - at);
    const A* g = load_run(advance(std::as_const(grad).data(), grad.dtype(), at), grad.dtype(), 1, n,
                          gradients);
    A *w = weights, *m = spare[0], *v = spare[1];
    if (wide.dtype() == dtype_for<A>())
      w = static_cast<A*>(wide.data()) + at;
    else
      load_run(advance(wide.data(), wide.dtype(), at), wide.dtype(), 1, n, weights);
    if (slot.states[0].defined()) m = static_cast<A*>(slot.states[0].data()) + at;
    if (slot.states[1].defined()) v = static_cast<A*>(slot.states[1].data()) + at;
    for_rule<A>([&](auto rule) {
#pragma GCC ivdep
      for (Index j = 0; j < n; ++j) w[j] = rule(c, w[j], g[j] * inverse_scale * clip, m[j], v[j]);
    });
    if (params_[i].dtype() != dtype_for<A>()) store(i, at, n, w);
  }
}

template <class A>
void Optimizer::update_reference(size_t i, const Tensor& grad, const amp::Factors& factors) const {
  const Slot& slot = slots_[i];
  const Tensor& wide = slot.master.defined() ? slot.master : params_[i];
  const Constants<A> c = constants<A>(slot);
  size_t n = size_t(grad.numel());
  auto widened = [n](const Tensor& t) {
    std::vector<A> values(n);
    if (!t.defined()) return values;
    std::vector<A> buffer(n);
    const A* from = load_run(std::as_const(t).data(), t.dtype(), 1, Index(n), buffer.data());
    std::copy_n(from, n, values.begin());
    return values;
  };
  auto written = [n](const std::vector<A>& values, const Tensor& t) {
    if (t.defined()) store_run(t.data(), t.dtype(), 1, Index(n), values.data());
  };
  std::vector<A> w = widened(wide), g = widened(grad);
  std::vector<A> m = widened(slot.states[0]), v = widened(slot.states[1]);
  for (A& x : g) x *= A(factors.inverse_scale);
  for (A& x : g) x *= A(factors.clip);
  for_rule<A>([&](auto rule) {
    for (size_t j = 0; j < n; ++j) w[j] = rule(c, w[j], g[j], m[j], v[j]);
  });
  written(m, slot.states[0]);
  written(v, slot.states[1]);
  written(w, slot.master);
  store(i, 0, Index(n), w.data());
}

StepResult Optimizer::step(const StepRequest& request) {
  std::vector<Tensor> grads = amp::dense_gradients(params_);
  check_connected(rule_, params_, grads);
  amp::check_scale(params_, request.scale, "step");
  amp::Factors factors{amp::inverse_of(request.scale), request.clip};
  amp::FirstBad bad = amp::first_nonfinite(grads, factors);
  StepResult result;
  result.kind = bad.kind;
  if (bad.kind != amp::Finite::yes) result.first_bad = amp::label(params_[bad.index], bad.index);
  result.found_inf = bad.kind != amp::Finite::yes;
  if (request.agree) result.found_inf = request.agree(result.found_inf);
  result.scale_before = result.scale_after = request.scale;
  result.stepped = !result.found_inf;
  if (result.stepped) apply(grads, factors);
  return result;
}

void Optimizer::apply(const std::vector<Tensor>& grads, const amp::Factors& factors) {
  ++counter(applied_);
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) ++counter(slots_[i].steps);
  auto in_its_type = [&](size_t i, auto&& f) {
    params_[i].dtype() == DType::f64 ? f(Tag<double>{}) : f(Tag<float>{});
  };
  if (options_.fused) {
    std::vector<amp::Chunk> chunks = amp::chunks_of(grads);
    parallel_for(Index(chunks.size()), 1, [&](Index begin, Index end) {
      for (Index k = begin; k < end; ++k) {
        const auto [i, from, to] = chunks[size_t(k)];
        in_its_type(i, [&]<class A>(Tag<A>) { update<A>(i, grads[i], from, to, factors); });
      }
    });
  } else {
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined())
        in_its_type(i, [&]<class A>(Tag<A>) { update_reference<A>(i, grads[i], factors); });
  }
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) params_[i].bump_version();
}

std::vector<NamedState> Optimizer::state() const {
  std::vector<NamedState> all{{"applied_steps", applied_}};
  for (size_t i = 0; i < params_.size(); ++i) {
    const Slot& slot = slots_[i];
    std::string prefix = (params_[i].name().empty() ? std::to_string(i) : params_[i].name()) + ".";
    all.emplace_back(prefix + "step", slot.steps);
    if (slot.master.defined()) all.emplace_back(prefix + "master", slot.master);
    for (size_t k = 0; k < 2; ++k)
      if (slot.states[k].defined()) all.emplace_back(prefix + rule_.states[k], slot.states[k]);
  }
  return all;
}

void Optimizer::load_state(const std::vector<NamedState>& saved) {
  std::map<std::string, Tensor> given(saved.begin(), saved.end());
  std::vector<NamedState> mine = state();
  std::string wrong;
  for (const auto& [name, to] : mine) {
    auto it = given.find(name);
    auto shown = [](const Tensor& t) { return name_of(t.dtype()) + to_string(t.shape()); };
    if (it == given.end())
      wrong += "\n  " + name + " is missing";
    else if (it->second.dtype() != to.dtype() || !(it->second.shape() == to.shape()))
      wrong += "\n  " + name + " is " + shown(it->second) + ", expected " + shown(to);
  }
  for (const auto& [name, from] : given)
    if (std::none_of(mine.begin(), mine.end(), [&](const auto& m) { return m.first == name; }))
      wrong += "\n  " + name + " is not expected";
  if (!wrong.empty())
    fail("[", rule_.name, "] the saved state belongs to another optimizer:", wrong);
  for (const auto& [name, to] : mine) copy_elements(given.at(name), to);
}

}  // namespace minim::optim
