// models/decoder.h -- what the decoder-only Transformers have in common: their configuration, and
// from tokens to logits.
#pragma once
#include <memory>
#include <optional>

#include "minim/autograd/checkpoint.h"
#include "minim/models/attention.h"

namespace minim::models {

enum class Family : uint8_t { gpt, llama };
const char* name_of(Family family);
/// @throws Error naming those there are.
Family family_named(std::string_view name);

struct DecoderConfig {
  Index vocab = 256, block = 64, layers = 4, heads = 4, embd = 128;
  double dropout = 0;
  bool bias = true;  ///< GPT: in linears and norms; a Llama has none
  bool tied = true;  ///< the head is the embedding's table
  Family family = Family::gpt;
  Index kv_heads = 0;  ///< Llama: heads of keys and values; 0: as heads
  AttentionKernel attention = AttentionKernel::fused;  ///< how, not what: no part of a model file
  /// Blocks keep only their inputs and run again in backward: less memory, the same bits. Not part
  /// of a saved model.
  bool checkpoint_activations = false;
  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

class Decoder : public Module {
 public:
  /// @param tokens integers (batch, time); with what the cache holds, at most `block`.
  /// @param cache what came before; the new tokens are added. @returns logits (batch, time, vocab).
  Tensor operator()(const Tensor& tokens, KeyValueCache* cache = nullptr) const {
    return within(tokens, [&] { return logits(tokens, cache); });
  }
  const DecoderConfig& config() const { return config_; }

 protected:
  /// @throws Error when a size is not positive.
  explicit Decoder(const DecoderConfig& config);
  /// From tokens, of which the first is number `position`, to the last norm's result.
  virtual Tensor features(const Tensor& tokens, Index position, KeyValueCache* cache) const = 0;
  /// Registers the head, unless it is tied, and names the parameters; the last thing to construct.
  void finish();
  AttentionConfig attention_config() const;
  /// block(x, cache), checkpointed where the configuration says so.
  template <class Block>
  Tensor run(const Block& block, const Tensor& x, LayerCache* cache) const {
    auto f = [&block, cache](const Tensor& v) { return block(v, cache); };
    return config_.checkpoint_activations && !cache ? autograd::checkpoint(f, x) : f(x);
  }
  /// The cache of layer i, or null.
  static LayerCache* layer(KeyValueCache* cache, size_t i) {
    return cache ? &(*cache)[i] : nullptr;
  }

  DecoderConfig config_;
  Embedding tokens_;

 private:
  Tensor forward(const Tensor& tokens) const override { return logits(tokens, nullptr); }
  Tensor logits(const Tensor& tokens, KeyValueCache* cache) const;
  std::optional<Linear> head_;
};

/// A lower bound that every family keeps: the embeddings, and four square matrices in each layer.
double least_parameters(const DecoderConfig& config);

/// The model of config.family, initialised from the thread's generator.
std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config);

}  // namespace minim::models
