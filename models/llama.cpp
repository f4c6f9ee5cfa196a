#include "minim/models/llama.h"

#include "minim/models/init.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

/// 8/3 of the width, so that three matrices cost what GPT's two do; a multiple of 32.
Index hidden_width(Index embd) { return (8 * embd / 3 + 31) / 32 * 32; }

}  // namespace

LlamaBlock::LlamaBlock(const DecoderConfig& c, const AttentionConfig& attention)
    : norm1_(c.embd),
      norm2_(c.embd),
      attention_(attention),
      gate_(c.embd, hidden_width(c.embd), false),
      up_(c.embd, hidden_width(c.embd), false),
      down_(hidden_width(c.embd), c.embd, false),
      dropout_(c.dropout) {
  init::residual_normal(attention_.out.weight, c.layers);
  init::residual_normal(down_.weight, c.layers);
  child("norm1", norm1_);
  child("attn", attention_);
  child("norm2", norm2_);
  child("mlp.gate", gate_);
  child("mlp.up", up_);
  child("mlp.down", down_);
  child("dropout", dropout_);
}

Tensor LlamaBlock::block(const Tensor& x, LayerCache* cache) const {
  Tensor y = x + dropout_(attention_(norm1_(x), cache));
  Tensor z = norm2_(y);
  return y + dropout_(down_(silu(gate_(z)) * up_(z)));
}

Llama::Llama(const DecoderConfig& config)
    : Decoder(config), dropout_(config.dropout), norm_(config.embd) {
  child("dropout", dropout_);
  for (Index i = 0; i < config.layers; ++i)
    child("blocks." + std::to_string(i), blocks_.emplace_back(config, attention_config()));
  child("norm", norm_);
  finish();
}

Tensor Llama::features(const Tensor& tokens, Index, KeyValueCache* cache) const {
  Tensor x = dropout_(tokens_(tokens));
  for (size_t i = 0; i < blocks_.size(); ++i) x = run(blocks_[i], x, layer(cache, i));
  return norm_(x);
}

}  // namespace minim::models
