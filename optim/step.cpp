// optim/step.cpp -- a step of an optimizer: the look whether all gradients are finite, and what the
// backend's one pass over each parameter is given.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "minim/core/backend.h"
#include "minim/core/plain/verbs.h"
#include "minim/core/pool.h"
#include "minim/core/random.h"
#include "minim/optim/clip.h"
#include "minim/optim/muon.h"
#include "minim/optim/optimizer.h"

namespace minim::optim {
namespace {

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

Constants<double> Optimizer::constants(size_t i, double t) const {
  const ParamGroup& group = groups_[slots_[i].group];
  const Rule& rule = *group.rule;
  const double lr = this->lr(slots_[i].group), decay = *group.weight_decay;
  const auto [beta1, beta2] = options_.betas;
  return {.keep = rule.decoupled ? 1 - lr * decay : 1,
          .l2 = rule.decoupled ? 0 : decay,
          .beta2 = beta2,
          .one_minus_beta1 = 1 - beta1,
          .one_minus_beta2 = 1 - beta2,
          .root2 = std::sqrt(1 - std::pow(beta2, t)),
          .eps = options_.eps,
          .rate = rule.kind == Kind::adam   ? lr / (1 - std::pow(beta1, t))
                  : rule.kind == Kind::muon ? lr * muon_scale(params_[i], options_.match_adamw_rms)
                                            : lr,
          .momentum = options_.momentum.value_or(rule.momentum),
          .nesterov = options_.nesterov,
          .amsgrad = options_.amsgrad};
}

/// The next step of parameter i.
Update Optimizer::update_of(size_t i, const Tensor& grad, const amp::Factors& factors) const {
  const Slot& slot = slots_[i];
  const int64_t t = counter(slot.steps) + 1;
  Update u{.kind = rule_of(i).kind,
           .constants = constants(i, double(t)),
           .factors = factors,
           .param = amp::flat_of(params_[i]),
           .grad = amp::flat_of(grad)};
  if (slot.master.defined()) u.master = static_cast<float*>(slot.master.data());
  for (size_t k = 0; k < 3; ++k)
    if (slot.states[k].defined()) u.states[k] = slot.states[k].data();
  u.stochastic = options_.stochastic_rounding && params_[i].dtype() == DType::bf16;
  u.seed = options_.seed;
  u.stream = random_stream(RandomUse::rounding, uint64_t(t) << 20 | i);
  return u;
}

Tensor Optimizer::master(size_t i) const {
  const Tensor& own = slots_.at(i).master;
  if (!own.defined() || is_averaged(params_[i])) return own;
  auto adopt = [&](const Tensor& master, bool take) {
    return backend(own.device())
        .adopt(amp::flat_of(params_[i]), static_cast<float*>(master.data()), take);
  };
  if (!adopt(own, false)) return own;
  Tensor now = empty(own.shape(), own.dtype(), own.device());
  copy_elements(own, now);
  adopt(now, true);
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
  // What needs memory comes first, as it may run out: until then nothing is changed.
  std::vector<Tensor> momenta(grads.size());
  std::vector<Update> updates;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    amp::Factors left = factors;  // for the pass over elements
    if (rule_of(i).kind == Kind::muon) {
      const double beta = options_.momentum.value_or(rule_of(i).momentum);
      std::tie(grads[i], momenta[i]) =
          muon_direction(grads[i], std::exchange(left, {}), slots_[i].states[0], beta);
    }
    updates.push_back(update_of(i, grads[i], left));
  }
  const Device device = params_[0].device();
  (options_.fused ? backend(device).update : plain::update)(updates);
  ++counter(applied_);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    ++counter(slots_[i].steps);
    if (momenta[i].defined()) copy_elements(momenta[i], slots_[i].states[0]);
    params_[i].bump_version();
  }
}

}  // namespace minim::optim
