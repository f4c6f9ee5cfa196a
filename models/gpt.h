// models/gpt.h -- GPT-2's Transformer (Radford et al., 2019): learned positions, pre-LayerNorm
// blocks, GELU, optional biases and an optionally tied head.
#pragma once
#include <deque>

#include "minim/models/decoder.h"

namespace minim::models {

/// x + attention(norm(x)), then x + mlp(norm(x)); x is (batch, time, embd).
class GPTBlock : public Module {
 public:
  GPTBlock(const DecoderConfig& config, const AttentionConfig& attention);
  Tensor operator()(const Tensor& x, LayerCache* cache) const {
    return within(x, [&] { return block(x, cache); });
  }

 private:
  Tensor block(const Tensor& x, LayerCache* cache) const;
  LayerNorm norm1_, norm2_;
  MultiHeadAttention attention_;
  Linear up_, down_;
  Dropout dropout_;
};

class GPT : public Decoder {
 public:
  /// @throws Error when a size is not positive or embd is not divisible by heads.
  explicit GPT(const DecoderConfig& config);

 private:
  Tensor features(const Tensor& tokens, Index position, KeyValueCache* cache) const override;
  Embedding positions_;
  Dropout dropout_;
  std::deque<GPTBlock> blocks_;
  LayerNorm norm_;
};

}  // namespace minim::models
