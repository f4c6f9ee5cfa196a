// models/module.h -- modules: trees of named parameters and buffers. A module is built from members
// that register themselves with their parent; names are dotted paths ("blocks.3.attn.qkv.weight"),
// the same in messages and in checkpoints.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "minim/autograd/node.h"

namespace minim::models {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children are registered by address
  Module& operator=(const Module&) = delete;

  /// The module's forward, under its path; then its hooks.
  Tensor operator()(const Tensor& x) const;
  using ForwardHook = std::function<Tensor(const Module&, const Tensor& x, const Tensor& y)>;
  /// Calls `f` after each forward with what went in and what came out; a defined result replaces
  /// that.
  HookHandle register_forward_hook(ForwardHook f) { return hooks_.add(std::move(f)); }
  /// Dotted, from the root: "blocks.3.attn.qkv"; "" for the root. A shared module has the path by
  /// way of the parent that registered it first.
  std::string path() const { return path_ ? *path_ : ""; }
  /// The module itself and all in it, by path within it, parents first; one that is shared once.
  std::vector<std::pair<std::string, Module*>> named_modules();

  /// In order of registration, parents first. A tied tensor (copies of one Tensor, or a module that
  /// is registered more than once) appears once, under the first of its names.
  NamedTensors named_parameters() const { return all_of(&Module::parameters_); }
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers() const { return all_of(&Module::buffers_); }
  /// Number of elements of all parameters.
  Index numel() const;

  /// Dropout and the like act only while training (the default).
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Converts every parameter of another dtype, which makes a new tensor without a gradient: tied
  /// ones stay tied, frozen ones frozen, and hooks stay. What was taken from the module before, as
  /// by an optimizer, is the old tensor. @throws Error for a finite value that the dtype makes inf
  /// of, where one parameter is a view of another, and while averages stand in for the weights;
  /// nothing is changed then, nor where memory
  /// runs out.
  void to(DType dtype);

  /// Parameters and buffers by name; a tied tensor once, under the first of its names.
  NamedTensors state_dict() const;
  /// Copies values in, rounding to each parameter's dtype. A tied tensor may be given under any of
  /// its names, or several. @throws Error naming every missing and unexpected name, every shape
  /// that differs, what differs though it is tied here, and what has a finite value that the
  /// parameter's dtype does not hold; nothing is changed then.
  void load_state_dict(const NamedTensors& state);

  /// Gives every parameter its dotted name (a tied one the first), for messages. Call once, on the
  /// root.
  void name_parameters() const;

 protected:
  /// What operator() calls. @throws Error where the module takes something else than one tensor.
  virtual Tensor forward(const Tensor& x) const;
  /// `body` under the module's path, then its hooks: for an operator() with more arguments.
  template <class F>
  Tensor within(const Tensor& x, F&& body) const {
    const ModuleScope scope(path_);
    return after_hooks(x, body());
  }
  /// Makes it require gradients, unless set_requires_grad(false) was said of it last.
  /// @throws Error for a tensor that an op made, and, as the other two, for a name that is taken,
  /// dots and all.
  void parameter(std::string name, Tensor& member);
  void buffer(std::string name, Tensor& member);
  void child(std::string name, Module& member);  ///< may be another's child too

 private:
  using Members = std::vector<std::pair<std::string, Tensor*>>;
  using Children = std::vector<std::pair<std::string, Module*>>;
  template <class F>
  void visit(const std::string& prefix, F&& f) const;
  Tensor after_hooks(const Tensor& x, Tensor y) const;
  NamedTensors every(Members Module::*list) const;
  NamedTensors every_state() const;
  NamedTensors all_of(Members Module::*list) const;
  void add_modules(const std::string& path, std::vector<std::pair<std::string, Module*>>& all);
  void put_under(const std::string& parent);
  using Names = std::map<std::string, std::string>;
  void add_names(const std::string& prefix, const std::string& of, Names& all) const;
  void check_free(const std::string& name, const Module* member = nullptr) const;
  Members parameters_, buffers_;
  Children children_;
  Hooks<ForwardHook> hooks_;
  ModuleScope::Path path_;
  const Module* parent_ = nullptr;  ///< the first that registered it: only compared
  bool training_ = true;
};

}  // namespace minim::models
