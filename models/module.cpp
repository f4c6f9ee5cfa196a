#include "minim/models/module.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "minim/core/convert.h"
#include "minim/core/number.h"

namespace minim::models {
namespace {

NamedTensors each_once(const NamedTensors& named) {
  NamedTensors once;
  std::set<const TensorImpl*> seen;
  for (const auto& entry : named)
    if (seen.insert(entry.second.impl()).second) once.push_back(entry);
  return once;
}

/// NaN is the same as NaN.
bool same_values(const Tensor& a, const Tensor& b) {
  if (a.shared() == b.shared()) return true;
  return std::ranges::equal(a.to_vector(), b.to_vector(),
                            [](double x, double y) { return x == y || (x != x && y != y); });
}

/// The first finite value that is none in the dtype; 0 where there is none.
double first_lost(const Tensor& x, DType dtype) {
  if (!is_floating(dtype) || promote_types(x.dtype(), dtype) == dtype) return 0;
  const Tensor dense = x.detach().contiguous().on_host();
  const double most = info(dtype).max;
  constexpr Index kRun = 512;
  double buffer[kRun];
  for (Index at = 0; at < dense.numel(); at += kRun) {
    const Index n = std::min(kRun, dense.numel() - at);
    const double* v = load_run(advance(std::as_const(dense).data(), dense.dtype(), at),
                               dense.dtype(), 1, n, buffer);
    for (Index i = 0; i < n; ++i)
      if (std::fabs(v[i]) > most && !detail::fits(v[i], dtype)) return v[i];
  }
  return 0;
}
std::string told(double lost, DType dtype) {
  std::ostringstream text;
  text << lost << ", which does not fit " << name_of(dtype) << ", whose largest value is "
       << info(dtype).max;
  return text.str();
}

}  // namespace

template <class F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const auto& [name, member] : children_) member->visit(prefix + name + ".", f);
}

/// All dotted names of members, and whose they are.
void Module::add_names(const std::string& prefix, const std::string& of, Names& all) const {
  for (const Members* list : {&parameters_, &buffers_})
    for (const auto& entry : *list) all.try_emplace(prefix + entry.first, entry.first + of);
  for (const auto& [name, member] : children_) {
    all.try_emplace(prefix + name, name + of);
    member->add_names(prefix + name + ".", " of " + name + of, all);
  }
}

/// Two members of one name, as dots make of a child's, would be one in a checkpoint.
void Module::check_free(const std::string& name, const Module* member) const {
  Names mine, more{{name, name}};
  add_names("", "", mine);
  if (member) member->add_names(name + ".", " of " + name, more);
  for (const auto& [full, whose] : more)
    if (const auto same = mine.find(full); same != mine.end())
      fail("[module '", path(), "'] attribute '", full, "' already exists",
           whose == same->second ? "" : ": " + whose + " has the dotted name of " + same->second,
           "; a parameter, buffer or child needs a name that no other has here");
}

void Module::parameter(std::string name, Tensor& member) {
  check_free(name);
  const auto& a = member.impl()->autograd;
  if (a && a->node)
    fail("[module '", path(), "'] can't optimize a tensor that an op made: parameter '", name,
         "' is the result of ", a->node->row->name,
         "; register a leaf: .detach().set_requires_grad()");
  if (!a || !a->frozen) member.set_requires_grad();
  parameters_.emplace_back(std::move(name), &member);
}
void Module::buffer(std::string name, Tensor& member) {
  check_free(name);
  buffers_.emplace_back(std::move(name), &member);
}
void Module::child(std::string name, Module& member) {
  check_free(name, &member);
  if (!member.parent_) {
    member.parent_ = this;
    member.put_under(path_ ? *path_ + "." + name : name);
  }
  children_.emplace_back(std::move(name), &member);
}
void Module::put_under(const std::string& parent) {
  path_ = std::make_shared<const std::string>(path_ ? parent + "." + *path_ : parent);
  std::set<Module*> moved;  // one under two names moves once
  for (auto& [name, member] : children_)
    if (member->parent_ == this && moved.insert(member).second) member->put_under(parent);
}

Tensor Module::operator()(const Tensor& x) const {
  return within(x, [&] { return forward(x); });
}

Tensor Module::after_hooks(const Tensor& x, Tensor y) const {
  for (const auto& hook : hooks_.all())
    if (Tensor replaced = (*hook)(*this, x, y); replaced.defined()) y = replaced;
  return y;
}

Tensor Module::forward(const Tensor&) const {
  fail("[module ", path(), "] does not take one tensor; see its class for how it is called");
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  add_modules("", all);
  return all;
}

void Module::add_modules(const std::string& path,
                         std::vector<std::pair<std::string, Module*>>& all) {
  if (std::ranges::find(all, this, &std::pair<std::string, Module*>::second) != all.end()) return;
  all.emplace_back(path, this);
  for (auto& [name, member] : children_)
    member->add_modules(path.empty() ? name : path + "." + name, all);
}

/// Under every name that leads there.
NamedTensors Module::every(Members Module::*list) const {
  NamedTensors all;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, member] : m.*list) all.emplace_back(prefix + name, *member);
  });
  return all;
}

NamedTensors Module::all_of(Members Module::*list) const { return each_once(every(list)); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, tensor] : named_parameters()) all.push_back(tensor);
  return all;
}

Index Module::numel() const {
  Index n = 0;
  for (const Tensor& p : parameters()) n += p.numel();
  return n;
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, member] : children_) member->train(on);
}

void Module::to(DType dtype) {
  MemoryScope kind(MemoryKind::weights);
  std::map<const Storage*, std::string> owners;
  for (const auto& [name, p] : named_parameters())
    if (const auto [owner, is_new] = owners.try_emplace(p.impl()->storage.get(), name);
        !is_new && p.dtype() != dtype)
      fail("[Module::to] ", name, " is a view of the memory of ", owner->second,
           ", and each would get its own: make them copies of one Tensor (", name, " = ",
           owner->second,
           ") and call .transpose() or .reshape() where it is used, or .clone() one");
  std::map<const TensorImpl*, std::pair<Tensor, Tensor>> done;  // old, held so, and new
  std::vector<std::pair<Tensor*, Tensor>> all;                  // where they go, once all are made
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, member] : m.parameters_) {
      if (member->dtype() == dtype) continue;
      auto [it, is_new] = done.try_emplace(member->impl(), *member, Tensor());
      if (is_new) {
        if (autograd_of(*member).averaged)
          fail(
              "[Module::to] averages stand in for the weights, which would be lost; end the Swap "
              "first");
        if (const double lost = first_lost(*member, dtype))
          fail("[Module::to] ", prefix, name, " has the value ", told(lost, dtype),
               "; choose a dtype of a wider range, or clamp it first");
        Tensor converted = member->detach().to(dtype).set_name(member->name());
        converted.set_requires_grad(member->requires_grad());
        autograd_of(converted).hooks = autograd_of(*member).hooks;
        autograd_of(converted).cast_by =
            std::string("Module::to(") + name_of(dtype) + (path_ ? ") of '" + *path_ + "'" : ")");
        it->second.second = converted;
      }
      all.emplace_back(member, it->second.second);
    }
  });
  for (const auto& [member, converted] : all) *member = converted;
}

NamedTensors Module::state_dict() const { return each_once(every_state()); }

/// Parameters and buffers under every name.
NamedTensors Module::every_state() const {
  NamedTensors state = every(&Module::parameters_);
  for (auto& b : every(&Module::buffers_)) state.push_back(b);
  return state;
}

void Module::load_state_dict(const NamedTensors& given) {
  std::map<std::string, Tensor> by_name(given.begin(), given.end());
  std::string wrong;
  const NamedTensors mine = every_state();
  std::map<const TensorImpl*, NamedTensors::value_type>
      from;  // the first given of a tensor's names
  for (const auto& [name, tensor] : mine) {
    auto it = by_name.find(name);
    if (it == by_name.end()) continue;
    if (!(it->second.shape() == tensor.shape()))
      wrong += "\n  " + name + " has shape " + to_string(it->second.shape()) + ", the model's is " +
               to_string(tensor.shape());
    else if (auto [first, is_new] = from.try_emplace(tensor.impl(), *it); is_new) {
      if (const double lost = first_lost(it->second, tensor.dtype()))
        wrong += "\n  " + name + " has the value " + told(lost, tensor.dtype());
    } else if (!same_values(first->second.second, it->second))
      wrong += "\n  " + first->second.first + " and " + name +
               " are one tensor in the model, but differ";
  }
  for (const auto& [name, tensor] : state_dict())
    if (!from.contains(tensor.impl()) && !by_name.contains(name)) wrong += "\n  missing: " + name;
  for (auto& [name, tensor] : given)
    if (std::ranges::find(mine, name, &NamedTensors::value_type::first) == mine.end())
      wrong += "\n  unexpected: " + name;
  if (!wrong.empty()) fail("the state does not fit the model:", wrong);
  NoGrad no_recording;
  for (auto [name, tensor] : state_dict()) tensor.copy_(from.at(tensor.impl()).second);
}

void Module::name_parameters() const {
  for (auto& [name, tensor] : named_parameters()) tensor.set_name(name);
}

}  // namespace minim::models
