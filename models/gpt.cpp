#include "minim/models/gpt.h"

#include "minim/models/init.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

const GPTConfig& checked(const GPTConfig& c) {
  if (c.vocab < 1 || c.block < 1 || c.layers < 1 || c.heads < 1 || c.embd < 1)
    fail("a GPT needs positive sizes: vocab ", c.vocab, ", block ", c.block, ", layers ", c.layers,
         ", heads ", c.heads, ", embd ", c.embd);
  if (c.embd % c.heads != 0)
    fail("embd ", c.embd, " is not divisible by heads ", c.heads,
         ": each head takes embd / heads columns");
  return c;
}

}  // namespace

GPTBlock::GPTBlock(const GPTConfig& c)
    : heads_(c.heads),
      kernel_(c.attention),
      norm1_(c.embd, c.bias),
      norm2_(c.embd, c.bias),
      qkv_(c.embd, 3 * c.embd, c.bias),
      attention_out_(c.embd, c.embd, c.bias),
      up_(c.embd, 4 * c.embd, c.bias),
      down_(4 * c.embd, c.embd, c.bias),
      dropout_(c.dropout) {
  init::residual_normal(attention_out_.weight, c.layers);
  init::residual_normal(down_.weight, c.layers);
  child("norm1", norm1_);
  child("attn.qkv", qkv_);
  child("attn.out", attention_out_);
  child("norm2", norm2_);
  child("mlp.up", up_);
  child("mlp.down", down_);
  child("dropout", dropout_);
}

Tensor GPTBlock::attention(const Tensor& x) const {
  Index batch = x.size(0), time = x.size(1), width = x.size(2);
  Tensor qkv = qkv_(x);
  auto part = [&](Index i) {
    return qkv.slice(2, i * width, (i + 1) * width)
        .reshape({batch, time, heads_, width / heads_})
        .transpose(1, 2);
  };
  Tensor y = scaled_dot_product_attention(part(0), part(1), part(2), {},
                                          {.causal = true, .kernel = kernel_});
  return attention_out_(y.transpose(1, 2).reshape({batch, time, width}));
}

Tensor GPTBlock::operator()(const Tensor& x) const {
  Tensor y = x + dropout_(attention(norm1_(x)));
  return y + dropout_(down_(gelu(up_(norm2_(y)))));
}

GPT::GPT(const GPTConfig& config)
    : config_(checked(config)),
      tokens_(config.vocab, config.embd),
      positions_(config.block, config.embd),
      dropout_(config.dropout),
      norm_(config.embd, config.bias) {
  child("tokens", tokens_);
  child("positions", positions_);
  child("dropout", dropout_);
  for (Index i = 0; i < config.layers; ++i)
    child("blocks." + std::to_string(i), blocks_.emplace_back(config));
  child("norm", norm_);
  if (!config.tied) child("head", head_.emplace_back(config.embd, config.vocab, false));
  name_parameters();
}

Tensor GPT::operator()(const Tensor& tokens) const {
  if (tokens.rank() != 2) fail("GPT takes tokens (batch, time), not ", tokens.shape());
  Index time = tokens.size(1);
  if (time > config_.block)
    fail(time, " tokens are longer than the model's block of ", config_.block);
  Tensor x = dropout_(tokens_(tokens) + positions_(arange(time)));
  for (const GPTBlock& block : blocks_) x = block(x);
  x = norm_(x);
  return config_.tied ? linear(x, tokens_.weight) : head_.front()(x);
}

}  // namespace minim::models
