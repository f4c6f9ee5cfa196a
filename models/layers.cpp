#include "minim/models/layers.h"

#include "minim/models/init.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

Tensor weights(const Shape& shape, double value = 0) {
  MemoryScope kind(MemoryKind::weights);
  return full(shape, value);
}

}  // namespace

Linear::Linear(Index in, Index out, bool with_bias)
    : weight(init::normal(weights({out, in}), 0, 0.02)) {
  parameter("weight", weight);
  if (!with_bias) return;
  bias = weights({out});
  parameter("bias", bias);
}
Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

Embedding::Embedding(Index vocab, Index width)
    : weight(init::normal(weights({vocab, width}), 0, 0.02)) {
  parameter("weight", weight);
}
Tensor Embedding::forward(const Tensor& indices) const { return embedding(weight, indices); }

LayerNorm::LayerNorm(Index width, bool with_bias, double e) : weight(weights({width}, 1)), eps(e) {
  parameter("weight", weight);
  if (!with_bias) return;
  bias = weights({width});
  parameter("bias", bias);
}
Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, weight, bias, {.eps = eps});
}

RMSNorm::RMSNorm(Index width, double e) : weight(weights({width}, 1)), eps(e) {
  parameter("weight", weight);
}
Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, weight, {.eps = eps}); }

Dropout::Dropout(double probability) : p(probability) {
  if (!(p >= 0 && p < 1)) fail("dropout must be in [0, 1), not ", p);
}
Tensor Dropout::forward(const Tensor& x) const {
  return training() && p > 0 ? dropout(x, {.p = p}) : x;
}

}  // namespace minim::models
