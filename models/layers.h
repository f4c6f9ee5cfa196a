// models/layers.h -- the layers a Transformer is made of. Parameters are fp32 until Module::to().
#pragma once
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

class Dropout : public Module {
 public:
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) const override;
  double p;
};

}  // namespace minim::models
