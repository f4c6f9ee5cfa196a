#include "minim/models/gpt.h"

#include "minim/models/init.h"
#include "minim/ops/functional.h"

namespace minim::models {

GPTBlock::GPTBlock(const DecoderConfig& c, const AttentionConfig& attention)
    : norm1_(c.embd, c.bias),
      norm2_(c.embd, c.bias),
      attention_(attention),
      up_(c.embd, 4 * c.embd, c.bias),
      down_(4 * c.embd, c.embd, c.bias),
      dropout_(c.dropout) {
  init::residual_normal(attention_.out.weight, c.layers);
  init::residual_normal(down_.weight, c.layers);
  child("norm1", norm1_);
  child("attn", attention_);
  child("norm2", norm2_);
  child("mlp.up", up_);
  child("mlp.down", down_);
  child("dropout", dropout_);
}

Tensor GPTBlock::block(const Tensor& x, LayerCache* cache) const {
  Tensor y = x + dropout_(attention_(norm1_(x), cache));
  return y + dropout_(down_(gelu(up_(norm2_(y)))));
}

GPT::GPT(const DecoderConfig& config)
    : Decoder(config),
      positions_(config.block, config.embd),
      dropout_(config.dropout),
      norm_(config.embd, config.bias) {
  child("positions", positions_);
  child("dropout", dropout_);
  for (Index i = 0; i < config.layers; ++i)
    child("blocks." + std::to_string(i), blocks_.emplace_back(config, attention_config()));
  child("norm", norm_);
  finish();
}

Tensor GPT::features(const Tensor& tokens, Index position, KeyValueCache* cache) const {
  Tensor x = dropout_(tokens_(tokens) + positions_(arange(tokens.size(1)) + Tensor(position)));
  for (size_t i = 0; i < blocks_.size(); ++i) x = run(blocks_[i], x, layer(cache, i));
  return norm_(x);
}

}  // namespace minim::models
