// models/decoder.h -- what the decoder-only Transformers have in common: their configuration, and
// from tokens to logits.
#pragma once
#include <memory>
#include <optional>

#include "minim/models/attention.h"

namespace minim::models {

enum class Family : uint8_t { gpt };
const char* name_of(Family family);
/// @throws Error naming those there are.
Family family_named(std::string_view name);

struct DecoderConfig {
  Index vocab = 256, block = 64, layers = 4, heads = 4, embd = 128;
  double dropout = 0;
  bool bias = true;  ///< in linears and norms
  bool tied = true;  ///< the head is the embedding's table
  Family family = Family::gpt;
  friend bool operator==(const DecoderConfig&, const DecoderConfig&) = default;
};

class Decoder : public Module {
 public:
  /// @param tokens integers (batch, time); with what the cache holds, at most `block`.
  /// @param cache what came before; the new tokens are added. @returns logits (batch, time, vocab).
  Tensor operator()(const Tensor& tokens, KeyValueCache* cache = nullptr) const;
  const DecoderConfig& config() const { return config_; }

 protected:
  /// @throws Error when a size is not positive.
  explicit Decoder(const DecoderConfig& config);
  /// From tokens, of which the first is number `position`, to the last norm's result.
  virtual Tensor features(const Tensor& tokens, Index position, KeyValueCache* cache) const = 0;
  /// Registers the head, unless it is tied, and names the parameters; the last thing to construct.
  void finish();
  AttentionConfig attention_config() const;
  /// The cache of layer i, or null.
  static LayerCache* layer(KeyValueCache* cache, size_t i) {
    return cache ? &(*cache)[i] : nullptr;
  }

  DecoderConfig config_;
  Embedding tokens_;

 private:
  std::optional<Linear> head_;
};

/// A lower bound that every family keeps: the embedding, and four square matrices in each layer.
double least_parameters(const DecoderConfig& config);

/// The model of config.family, initialised from the thread's generator.
std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config);

}  // namespace minim::models
