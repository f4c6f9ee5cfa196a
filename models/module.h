// models/module.h -- modules: trees of named parameters and buffers. A module is built from members
// that register themselves with their parent; names are dotted paths ("blocks.3.attn.qkv.weight"),
// the same in messages and in checkpoints.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "minim/core/tensor.h"

namespace minim::models {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children are registered by address
  Module& operator=(const Module&) = delete;

  /// In order of registration, parents first. Tied parameters appear once.
  NamedTensors named_parameters() const;
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers() const;
  /// Number of elements of all parameters.
  Index numel() const;

  /// Dropout and the like act only while training (the default).
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }

  /// Converts every floating parameter; gradients are dropped.
  void to(DType dtype);

  /// Parameters and buffers by name.
  NamedTensors state_dict() const;
  /// Copies values in, rounding to each parameter's dtype. @throws Error naming every missing and
  /// unexpected name, and every shape that differs; nothing is changed then.
  void load_state_dict(const NamedTensors& state);

  /// Gives every parameter its dotted name, for messages. Call once, on the root.
  void name_parameters() const;

 protected:
  void parameter(std::string name, Tensor& member);
  void buffer(std::string name, Tensor& member);
  void child(std::string name, Module& member);

 private:
  template <class F>
  void visit(const std::string& prefix, F&& f) const;
  std::vector<std::pair<std::string, Tensor*>> parameters_, buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true;
};

}  // namespace minim::models
