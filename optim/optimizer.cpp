#include "minim/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "minim/autograd/node.h"

namespace minim::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_range(const Rule& rule, const char* what, double v, double end) {
  if (!(v >= 0 && v < end)) fail("[", rule.name, "] ", what, " must be in [0, ", end, "), not ", v);
}

/// What is taken in double is used in f32, but for parameters in f64.
void check_fits(const Rule& rule, const char* what, double v, const std::vector<ParamGroup>& groups,
                bool may_be_0 = true) {
  const float used = float(v);
  if (!std::isinf(used) && (used != 0 || v == 0 || may_be_0)) return;
  for (const ParamGroup& g : groups)
    for (const Tensor& p : g.params)
      if (p.defined() && p.dtype() != DType::f64)
        fail("[", rule.name, "] ", what, " = ", v, " is ", used,
             " in f32, in which parameters are updated that are not f64; give one that f32 holds");
}

void check_options(const Rule& rule, const Options& o, const std::vector<ParamGroup>& groups) {
  const Options usual;
  check_range(rule, "lr", o.lr, kInfinity);
  check_range(rule, "eps", o.eps, kInfinity);
  check_range(rule, "betas[0]", o.betas[0], 1);
  check_range(rule, "betas[1]", o.betas[1], 1);
  check_range(rule, "momentum", o.momentum.value_or(0), kInfinity);
  check_range(rule, "weight_decay", o.weight_decay.value_or(0), kInfinity);
  check_fits(rule, "eps", o.eps, groups, false);
  check_fits(rule, "momentum", o.momentum.value_or(0), groups);
  bool used[3] = {};  // by kind
  for (const ParamGroup& g : groups) used[size_t(g.rule->kind)] = true;
  auto [sgd, adam, muon] = used;
  if (!sgd && !muon && (o.momentum || o.nesterov))
    fail("[", rule.name, "] has betas, not momentum or nesterov");
  if (!adam && (o.betas != usual.betas || o.eps != usual.eps || o.amsgrad))
    fail("[", rule.name, "] has momentum, not betas, eps or amsgrad");
  if (!muon && o.match_adamw_rms) fail("[", rule.name, "] is no Muon: match_adamw_rms is for it");
  if (o.nesterov && o.momentum.value_or(rule.momentum) == 0)
    fail("[", rule.name, "] nesterov needs momentum > 0");
  if (int(o.masters) + int(o.stochastic_rounding) + int(o.allow_plain_half) > 1)
    fail("[", rule.name,
         "] masters, stochastic_rounding and allow_plain_half exclude each other: choose one");
}

void check_storage(const Rule& rule, const Options& o, const Tensor& p, const std::string& label) {
  if (!p.defined()) fail("[", rule.name, "] ", label, " is undefined");
  if (!is_floating(p.dtype()) || !p.is_contiguous())
    fail("[", rule.name, "] ", label, " is ", name_of(p.dtype()), p.shape(),
         p.is_contiguous() ? "" : ", a strided view", "; parameters are dense floating tensors");
  if (rule.kind == Kind::muon && p.rank() != 2)
    fail("[", rule.name, "] ", label, " is ", name_of(p.dtype()), p.shape(),
         "; Muon is for matrices: put the others in a group with rule = &kAdamW");
  if (!is_half(p.dtype()) || o.masters || o.allow_plain_half) return;
  const std::string& by = autograd_of(p).cast_by;
  if (!o.stochastic_rounding)
    fail("[", rule.name, "] ", label, " is stored in ", name_of(p.dtype()), " (",
         by.empty() ? "as it was made" : "by " + by,
         "), where updates below half an ulp are lost; "
         "keep it in f32 and use "
         "Autocast, or set masters = true, or stochastic_rounding = true (bf16), or "
         "allow_plain_half = true");
  if (p.dtype() != DType::bf16)
    fail("[", rule.name, "] ", label,
         " is f16: stochastic rounding needs bf16's range; set masters = true");
}

/// A group's rate while the optimizer's is `lr` and was `first`.
double rate_of(const ParamGroup& group, double lr, double first) {
  if (!group.lr) return lr;
  return lr == first ? *group.lr : *group.lr * (lr / first);
}

}  // namespace

const Rule& rule_named(std::string_view name) {
  for (const Rule* r : {&kSGD, &kAdam, &kAdamW, &kMuon})
    if (name == r->name) return *r;
  fail("'", name, "' is no optimizer; known: sgd adam adamw muon");
}

std::vector<std::string> keys_of(std::span<const Tensor> params) {
  std::vector<std::string> keys;
  std::set<std::string> taken;
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string number = std::to_string(i);
    std::string key = params[i].name().empty() ? number : params[i].name();
    while (!taken.insert(key).second) key += "#" + number;
    keys.push_back(std::move(key));
  }
  return keys;
}

bool is_averaged(const Tensor& param) {
  return param.impl()->autograd && param.impl()->autograd->averaged;
}

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, const Options& options)
    : rule_(rule),
      options_(options),
      groups_(std::move(groups)),
      applied_(zeros({}, DType::i64, kHost)),
      rate_(full({}, options.lr, DType::f64, kHost)) {
  for (ParamGroup& group : groups_)
    if (!group.rule) group.rule = &rule;
  check_options(rule, options, groups_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    ParamGroup& group = groups_[g];
    group.weight_decay =
        group.weight_decay.value_or(options.weight_decay.value_or(group.rule->weight_decay));
    check_range(rule, "a group's lr", group.lr.value_or(options.lr), kInfinity);
    check_range(rule, "a group's weight_decay", *group.weight_decay, kInfinity);
    check_fits(rule, "weight_decay", *group.weight_decay, {group});
    for (const Tensor& p : group.params) add_parameter(p, g);
  }
  if (params_.empty()) fail("[", rule.name, "] was given no parameters");
  check_rate("lr", options.lr);
}

void Optimizer::add_parameter(const Tensor& p, size_t group) {
  std::string label = amp::label(p, params_.size());
  const Rule& rule = *groups_[group].rule;
  check_storage(rule, options_, p, label);
  amp::check_leaf(p, params_.size(), rule.name);
  if (!params_.empty() && !(p.device() == params_[0].device()))
    fail("[", rule.name, "] ", label, " is on another device than the parameters before it; make ",
         "an optimizer for each device");
  if (!options_.fused && !(p.device() == kHost))
    fail("[", rule.name, "] ", label, " is not on the CPU, where the reference (fused = false) is");
  if (is_known(p, group)) return;
  DType wide = promote_types(p.dtype(), DType::f32);
  Slot slot{group, {}, {}, zeros({}, DType::i64, kHost)};
  if (options_.masters && is_half(p.dtype())) {
    MemoryScope kind(MemoryKind::masters);
    slot.master = empty(p.shape(), wide, p.device());
    copy_elements(p, slot.master);
  }
  MemoryScope kind(MemoryKind::moments);
  bool adam = rule.kind == Kind::adam;
  const bool kept[] = {rule.kind != Kind::sgd || options_.momentum.value_or(rule.momentum) != 0,
                       adam, adam && options_.amsgrad};
  for (size_t k = 0; k < 3; ++k)
    if (kept[k]) slot.states[k] = zeros(p.shape(), wide, p.device());
  params_.push_back(p);
  slots_.push_back(std::move(slot));
}

/// Whether the group has it already.
bool Optimizer::is_known(const Tensor& p, size_t group) const {
  auto bytes_of = [](const Tensor& t) {
    const std::byte* first = static_cast<const std::byte*>(std::as_const(t).data());
    return std::pair(first, first + t.numel() * Index(size_of(t.dtype())));
  };
  const auto [first, end] = bytes_of(p);
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& other = params_[i];
    const size_t where = slots_[i].group;
    if (other.impl() == p.impl() && where == group) return true;
    if (other.impl() == p.impl())
      fail("[", rule_.name, "] ", amp::label(p, i), " is in groups ", where, " and ", group,
           ": it has one rate and one decay, so give it to one of them");
    const auto [other_first, other_end] = bytes_of(other);
    if (first < other_end && other_first < end)
      fail("[", rule_.name, "] ", amp::label(p, params_.size()), " shares memory with ",
           amp::label(other, i), ", so that each step would move it twice; give one of the two");
  }
  return false;
}

void Optimizer::zero_grad() {
  for (const Tensor& p : params_) p.set_grad({});
}

/// @throws Error where lr cannot be the rate.
void Optimizer::check_rate(const char* what, double lr) const {
  check_range(rule_, what, lr, kInfinity);
  for (const ParamGroup& g : groups_) {
    if (options_.lr == 0 && lr != 0 && g.lr.value_or(0) != 0)
      fail("[", rule_.name, "] set_lr(", lr, "): a group's rate of ", *g.lr,
           " has no proportion to options.lr, which is 0; give the options the rate that the "
           "groups' rates stand beside");
    check_fits(rule_, g.lr ? "a group's lr" : what, rate_of(g, lr, options_.lr), {g}, false);
  }
}

void Optimizer::set_lr(double lr) {
  check_rate("lr", lr);
  rate() = lr;
}

double Optimizer::lr(size_t group) const { return rate_of(groups_.at(group), rate(), options_.lr); }

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

std::vector<NamedState> Optimizer::state() const {
  std::vector<NamedState> all{{"applied_steps", applied_}, {"lr", rate_}};
  const std::vector<std::string> keys = keys_of(params_);
  for (size_t i = 0; i < params_.size(); ++i) {
    const Slot& slot = slots_[i];
    std::string prefix = keys[i] + ".";
    all.emplace_back(prefix + "step", slot.steps);
    if (slot.master.defined()) all.emplace_back(prefix + "master", slot.master);
    for (size_t k = 0; k < 3; ++k)
      if (slot.states[k].defined()) all.emplace_back(prefix + rule_of(i).states[k], slot.states[k]);
  }
  return all;
}

void Optimizer::load_state(std::vector<NamedState> saved) {
  auto lr = std::ranges::find(saved, "lr", &NamedState::first);
  if (lr == saved.end()) lr = saved.insert(lr, {"lr", rate_});
  if (lr->second.dtype() == DType::f64 && lr->second.rank() == 0)
    check_rate("the saved lr", lr->second.item());
  copy_state(rule_.name, saved, state());
}

void copy_state(const char* who, const std::vector<NamedState>& saved,
                const std::vector<NamedState>& mine) {
  std::map<std::string, Tensor> given(saved.begin(), saved.end());
  std::string wrong;
  for (const auto& [name, to] : mine) {
    auto it = given.find(name);
    auto shown = [](const Tensor& t) { return name_of(t.dtype()) + to_string(t.shape()); };
    if (it == given.end())
      wrong += "\n  " + name + " is missing";
    else if (it->second.dtype() != to.dtype() || !(it->second.shape() == to.shape()))
      wrong += "\n  " + name + " is " + shown(it->second) + ", expected " + shown(to);
    else if (to.dtype() == DType::i64 && it->second.item<int64_t>() < 0)
      wrong += "\n  " + name + " is below 0: " + to_string(it->second);
  }
  std::set<std::string> seen;
  for (const auto& [name, from] : saved)
    if (!seen.insert(name).second) wrong += "\n  " + name + " is given twice";
  for (const auto& [name, from] : given)
    if (std::ranges::find(mine, name, &NamedState::first) == mine.end())
      wrong += "\n  " + name + " is not expected";
  if (!wrong.empty()) fail("[", who, "] the saved state belongs to another optimizer:", wrong);
  for (const auto& [name, to] : mine) copy_elements(given.at(name), to);
}

}  // namespace minim::optim
