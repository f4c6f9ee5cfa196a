// models/llama.h -- a Llama-style Transformer (Touvron et al., 2023): rotary positions, RMS norms,
// SwiGLU, grouped heads, no biases.
#pragma once
#include <deque>

#include "minim/models/decoder.h"

namespace minim::models {

/// x + attention(norm(x)), then x + down(silu(gate(norm(x))) * up(norm(x))).
class LlamaBlock : public Module {
 public:
  LlamaBlock(const DecoderConfig& config, const AttentionConfig& attention);
  Tensor operator()(const Tensor& x, LayerCache* cache) const {
    return within(x, [&] { return block(x, cache); });
  }

 private:
  Tensor block(const Tensor& x, LayerCache* cache) const;
  RMSNorm norm1_, norm2_;
  MultiHeadAttention attention_;
  Linear gate_, up_, down_;
  Dropout dropout_;
};

class Llama : public Decoder {
 public:
  /// @throws Error as GPT does, and when heads is not divisible by kv_heads or a head's width is
  /// odd.
  explicit Llama(const DecoderConfig& config);

 private:
  Tensor features(const Tensor& tokens, Index position, KeyValueCache* cache) const override;
  Dropout dropout_;
  std::deque<LlamaBlock> blocks_;
  RMSNorm norm_;
};

}  // namespace minim::models
