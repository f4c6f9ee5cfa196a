#include "minim/models/decoder.h"

#include "minim/models/gpt.h"
#include "minim/models/llama.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

struct FamilyRow {
  const char* name;
  std::unique_ptr<Decoder> (*make)(const DecoderConfig&);
};
template <class Model>
std::unique_ptr<Decoder> make(const DecoderConfig& config) {
  return std::make_unique<Model>(config);
}
constexpr FamilyRow kFamilies[] = {{"gpt", make<GPT>}, {"llama", make<Llama>}};

const DecoderConfig& checked(const DecoderConfig& c) {
  if (c.vocab < 1 || c.block < 1 || c.layers < 1 || c.heads < 1 || c.embd < 1 || c.kv_heads < 0)
    fail("a Transformer needs positive sizes: vocab ", c.vocab, ", block ", c.block, ", layers ",
         c.layers, ", heads ", c.heads, ", embd ", c.embd);
  if (c.family == Family::gpt && c.kv_heads != 0)
    fail("kv_heads ", c.kv_heads, " is for a Llama: a GPT has as many as heads; give 0");
  if (c.embd % c.heads != 0)
    fail("embd ", c.embd, " is not divisible by heads ", c.heads,
         ": each head takes embd / heads columns");
  return c;
}

}  // namespace

const char* name_of(Family family) { return kFamilies[size_t(family)].name; }

Family family_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kFamilies); ++i)
    if (name == kFamilies[i].name) return Family(i);
  fail("there is no model '", name, "'; known: gpt llama");
}

double least_parameters(const DecoderConfig& c) {
  const auto embd = double(c.embd);
  const double positions = c.family == Family::gpt ? double(c.block) : 0;
  return (double(c.vocab) + positions) * embd + double(c.layers) * 4 * embd * embd;
}

std::unique_ptr<Decoder> make_decoder(const DecoderConfig& config) {
  return kFamilies[size_t(config.family)].make(config);
}

Decoder::Decoder(const DecoderConfig& config)
    : config_(checked(config)), tokens_(config.vocab, config.embd) {
  child("tokens", tokens_);
}

void Decoder::finish() {
  if (!config_.tied) child("head", head_.emplace(config_.embd, config_.vocab, false));
  name_parameters();
}

AttentionConfig Decoder::attention_config() const {
  const bool llama = config_.family == Family::llama;
  return {.width = config_.embd,
          .heads = config_.heads,
          .kv_heads = llama ? config_.kv_heads : 0,
          .bias = config_.bias && !llama,
          .rope = llama,
          .dropout = config_.dropout,
          .kernel = config_.attention,
          .capacity = config_.block};
}

Tensor Decoder::logits(const Tensor& tokens, KeyValueCache* cache) const {
  if (tokens.rank() != 2) fail("a Transformer takes tokens (batch, time), not ", tokens.shape());
  if (cache && cache->empty()) cache->resize(size_t(config_.layers));
  const Index before = cache ? cache->front().length : 0, all = before + tokens.size(1);
  if (all > config_.block)
    fail(all, " tokens are longer than the model's block of ", config_.block);
  Tensor x = features(tokens, before, cache);
  return head_ ? (*head_)(x) : linear(x, tokens_.weight);
}

}  // namespace minim::models
