// models/gpt.h -- the bundled Transformer: a GPT (Radford et al., 2019) with learned positions,
// pre-LayerNorm blocks, GELU, optional biases and an optionally tied head.
#pragma once
#include <deque>

#include "minim/models/layers.h"
#include "minim/ops/scaled_dot_product_attention.h"

namespace minim::models {

struct GPTConfig {
  Index vocab = 256, block = 64, layers = 4, heads = 4, embd = 128;
  double dropout = 0;
  bool bias = true;                                    ///< in linears and norms
  bool tied = true;                                    ///< the head is the embedding's table
  AttentionKernel attention = AttentionKernel::fused;  ///< how, not what: no part of a model file
  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

/// x + attention(norm(x)), then x + mlp(norm(x)); x is (batch, time, embd).
class GPTBlock : public Module {
 public:
  explicit GPTBlock(const GPTConfig& config);
  Tensor operator()(const Tensor& x) const;

 private:
  Tensor attention(const Tensor& x) const;
  Index heads_;
  AttentionKernel kernel_;
  LayerNorm norm1_, norm2_;
  Linear qkv_, attention_out_, up_, down_;
  Dropout dropout_;
};

class GPT : public Module {
 public:
  /// @throws Error when a size is not positive or embd is not divisible by heads.
  explicit GPT(const GPTConfig& config);
  /// @param tokens integers (batch, time), time <= block. @returns logits (batch, time, vocab).
  Tensor operator()(const Tensor& tokens) const;
  const GPTConfig& config() const { return config_; }

 private:
  GPTConfig config_;
  Embedding tokens_, positions_;
  Dropout dropout_;
  std::deque<GPTBlock> blocks_;
  LayerNorm norm_;
  std::deque<Linear> head_;  ///< empty when tied
};

}  // namespace minim::models
