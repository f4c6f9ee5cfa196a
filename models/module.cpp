#include "minim/models/module.h"

#include <algorithm>
#include <map>

namespace minim::models {

template <class F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const auto& [name, member] : children_) member->visit(prefix + name + ".", f);
}

void Module::parameter(std::string name, Tensor& member) {
  member.set_requires_grad();
  parameters_.emplace_back(std::move(name), &member);
}
void Module::buffer(std::string name, Tensor& member) {
  buffers_.emplace_back(std::move(name), &member);
}
void Module::child(std::string name, Module& member) {
  member.put_under(path_ ? *path_ + "." + name : name);
  children_.emplace_back(std::move(name), &member);
}
void Module::put_under(const std::string& parent) {
  path_ = std::make_shared<const std::string>(path_ ? parent + "." + *path_ : parent);
  for (auto& [name, member] : children_) member->put_under(parent);
}

Tensor Module::operator()(const Tensor& x) const {
  return within(x, [&] { return forward(x); });
}

Tensor Module::within(const Tensor& x, const std::function<Tensor()>& body) const {
  ModuleScope scope(path_);
  Tensor y = body();
  for (const auto& hook : hooks_.all())
    if (Tensor replaced = (*hook)(*this, x, y); replaced.defined()) y = replaced;
  return y;
}

Tensor Module::forward(const Tensor&) const {
  fail("[module ", path(), "] does not take one tensor; see its class for how it is called");
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (auto& [name, member] : children_)
    for (auto& [below, module] : member->named_modules())
      all.emplace_back(below.empty() ? name : name + "." + below, module);
  return all;
}

NamedTensors Module::all_of(Members Module::*list) const {
  NamedTensors all;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, member] : m.*list) all.emplace_back(prefix + name, *member);
  });
  return all;
}

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
  visit("", [&](const std::string&, const Module& m) {
    for (const auto& [name, member] : m.parameters_) {
      Tensor converted = member->detach().to(dtype).set_name(member->name());
      converted.set_requires_grad();
      autograd_of(converted).cast_by =
          std::string("Module::to(") + name_of(dtype) + (path_ ? ") of '" + *path_ + "'" : ")");
      *member = converted;
    }
  });
}

NamedTensors Module::state_dict() const {
  NamedTensors state = named_parameters();
  for (auto& b : named_buffers()) state.push_back(b);
  return state;
}

void Module::load_state_dict(const NamedTensors& given) {
  std::map<std::string, Tensor> by_name(given.begin(), given.end());
  std::string wrong;
  NamedTensors mine = state_dict();
  for (auto& [name, tensor] : mine) {
    auto it = by_name.find(name);
    if (it == by_name.end())
      wrong += "\n  missing: " + name;
    else if (!(it->second.shape() == tensor.shape()))
      wrong += "\n  " + name + " has shape " + to_string(it->second.shape()) + ", the model's is " +
               to_string(tensor.shape());
  }
  for (auto& [name, tensor] : given)
    if (std::ranges::find(mine, name, &NamedTensors::value_type::first) == mine.end())
      wrong += "\n  unexpected: " + name;
  if (!wrong.empty()) fail("the state does not fit the model:", wrong);
  NoGrad no_recording;
  for (auto& [name, tensor] : mine) tensor.copy_(by_name.at(name));
}

void Module::name_parameters() const {
  for (auto& [name, tensor] : named_parameters()) tensor.set_name(name);
}

}  // namespace minim::models
