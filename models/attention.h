// models/attention.h -- multi-head attention (Vaswani et al., 2017) as a layer, with grouped heads
// (Ainslie et al., 2023), rotary positions (Su et al., 2021) and a cache of keys and values.
#pragma once
#include <vector>

#include "minim/models/layers.h"
#include "minim/ops/scaled_dot_product_attention.h"

namespace minim::models {

/// What a layer keeps of the tokens that it has seen, so that each is computed once: keys and
/// values (batch, kv heads, capacity, head width), of which the first `length` are filled.
struct LayerCache {
  Tensor k, v;
  Index length = 0;

  /// Adds k and v (batch, kv heads, time, head width) and returns all there are so far, as views.
  /// @throws Error when they exceed the capacity or differ in shape or dtype from what is there.
  std::pair<Tensor, Tensor> append(const Tensor& new_k, const Tensor& new_v, Index capacity);
};
/// One per layer. Empty at first; the model fills it.
using KeyValueCache = std::vector<LayerCache>;

struct AttentionConfig {
  Index width = 128, heads = 4;
  Index kv_heads = 0;  ///< heads of keys and values, each shared by heads / kv_heads; 0: as heads
  bool bias = true;
  bool rope = false;   ///< rotate queries and keys by their positions
  double dropout = 0;  ///< share of the probabilities set to 0 in training
  AttentionKernel kernel = AttentionKernel::fused;
  Index capacity = 0;  ///< the most tokens that a cache must hold
};

/// Causal self-attention: x (batch, time, width) to the same shape.
class MultiHeadAttention : public Module {
 public:
  /// @throws Error when width is not divisible by heads, or heads by kv_heads.
  explicit MultiHeadAttention(const AttentionConfig& config);
  /// @param cache what came before x. A cache that holds something takes one token at a time.
  Tensor operator()(const Tensor& x, LayerCache* cache = nullptr) const {
    return within(x, [&] { return attend(x, cache); });
  }
  Linear qkv, out;

 private:
  Tensor forward(const Tensor& x) const override { return attend(x, nullptr); }
  Tensor attend(const Tensor& x, LayerCache* cache) const;
  AttentionConfig config_;
};

}  // namespace minim::models
