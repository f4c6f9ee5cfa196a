#include "minim/tools/trainer.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/models/atomic_dir.h"
#include "minim/models/model_file.h"
#include "minim/models/toy_language.h"
#include "minim/ops/functional.h"
#include "minim/optim/clip.h"
#include "minim/optim/schedule.h"

namespace minim {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kStreamsPerMicroStep = 1 << 16;  // more than a model has dropouts

models::Dataset load_data(const TrainConfig::Input& in, int64_t seed) {
  if (in.data == "toy") return models::toy_language(uint64_t(seed), in.toy_tokens);
  if (in.data.ends_with(".bin"))
    return models::load_tokens(in.data, in.vocab > 0 ? std::optional<int64_t>(in.vocab) : std::nullopt);
  auto kind = in.tokenizer == "byte" ? models::TokenizerKind::byte : models::TokenizerKind::character;
  return models::load_text(in.data, kind);
}

std::unique_ptr<models::GPT> build_model(const TrainConfig& c, int64_t vocab, const amp::Precision& precision) {
  generator() = {uint64_t(c.train.seed), 0};
  auto model = std::make_unique<models::GPT>(models::GPTConfig{.vocab = vocab, .block = c.model.block, .layers = c.model.layers,
                                                               .heads = c.model.heads, .embd = c.model.embd,
                                                               .dropout = c.model.dropout, .bias = c.model.bias,
                                                               .tied = c.model.tied});
  return model;
}

/// Decay on matrices and embeddings only: norms and biases have no scale to shrink towards.
std::vector<optim::ParamGroup> groups_of(const models::GPT& model, double weight_decay) {
  optim::ParamGroup decayed, plain;
  for (const Tensor& p : model.parameters()) (p.rank() >= 2 ? decayed : plain).params.push_back(p);
  decayed.weight_decay = weight_decay;
  plain.weight_decay = 0;
  return {decayed, plain};
}

double largest_magnitude(const Tensor& x) {
  NoGrad no_recording;
  return std::max(max(x.detach()).item(), -(-max(neg(x.detach())).item()));
}

}  // namespace

}  // namespace minim
