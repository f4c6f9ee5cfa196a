// models/language_model.h -- what one does with a model of token sequences: make batches, evaluate,
// generate.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "minim/amp/precision.h"
#include "minim/models/decoder.h"
#include "minim/models/token_array.h"

namespace minim::models {

/// i64 (batch, time): inputs, and the token that follows each.
struct Batch {
  Tensor inputs, targets;
};
/// Sequences of `block` inputs that begin at `starts`.
Batch make_batch(const TokenArray& tokens, std::span<const int64_t> starts, Index block);

struct Evaluation {
  double loss = 0;  ///< nats per token, mean over every token but the first
  Index tokens = 0;
  double max_logit = 0;  ///< largest |logit|
};
/// Over all of `tokens`, in the windows of validation_windows(); in eval mode, without gradients,
/// with the casts of `precision`.
Evaluation evaluate(Decoder& model, const TokenArray& tokens, Index block, Index batch,
                    const amp::Precision& precision);

struct Sampling {
  Index count = 200;
  double temperature = 1;  ///< 0 takes the likeliest token
  Index top_k = 0;         ///< 0 keeps all
  uint64_t seed = 1337;
  bool cache = true;  ///< keep keys and values; the tokens are the same without, only later
};
/// Continues `prompt`, which must not be empty, token by token; `made` hears each. The same seed
/// gives the same tokens. The model sees up to `block` tokens; when they are full, the oldest half
/// of a block is left out, so that the cache is filled anew only once in that many tokens.
/// @throws Error when the model's logits are not finite.
std::vector<int32_t> generate(Decoder& model, std::vector<int32_t> prompt, const Sampling& how,
                              const std::function<void(int32_t)>& made = {});

}  // namespace minim::models
