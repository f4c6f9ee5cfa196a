// models/layers.h -- the layers that networks are made of (images: models/conv_layers.h).
// Parameters are fp32 until Module::to().
#pragma once
#include <functional>
#include <memory>

#include "minim/models/module.h"

namespace minim::models {

/// y = x W^T + b; x (..., in), W (out, in). W is normal(0, 0.02), b zero; re-initialise with
/// models::init.
class Linear : public Module {
 public:
  Linear(Index in, Index out, bool bias = true);
  Tensor forward(const Tensor& x) const override;
  Tensor weight, bias;  ///< bias is undefined without one
};

/// Rows of a (vocab, width) table, normal(0, 0.02), by index.
class Embedding : public Module {
 public:
  Embedding(Index vocab, Index width);
  Tensor forward(const Tensor& indices) const override;
  Tensor weight;
};

/// Over the last axis (Ba et al., 2016), with gain and optional bias.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(Index width, bool bias = true, double eps = 1e-5);
  Tensor forward(const Tensor& x) const override;
  Tensor weight, bias;
  double eps;
};

/// x / rms(x) over the last axis (Zhang and Sennrich, 2019), with gain.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(Index width, double eps = 1e-6);
  Tensor forward(const Tensor& x) const override;
  Tensor weight;
  double eps;
};

class Dropout : public Module {
 public:
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) const override;
  double p;
};

/// A function without parameters as a module: `Function(relu)`.
class Function : public Module {
 public:
  explicit Function(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {}
  Tensor forward(const Tensor& x) const override { return f_(x); }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

/// Modules one after the other, named "0", "1", ... Built in place:
/// `net.add<Linear>(2, 64); net.add(relu);` One that is used in several places is given as a
/// std::shared_ptr.
class Sequential : public Module {
 public:
  template <class M, class... Args>
  M& add(Args&&... args) {
    auto made = std::make_shared<M>(std::forward<Args>(args)...);
    add(std::shared_ptr<Module>(made));
    return *made;
  }
  void add(std::shared_ptr<Module> shared) {
    child(std::to_string(modules_.size()), *shared);
    modules_.push_back(std::move(shared));
  }
  void add(std::function<Tensor(const Tensor&)> f) { add<Function>(std::move(f)); }
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (const auto& module : modules_) y = (*module)(y);
    return y;
  }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace minim::models
