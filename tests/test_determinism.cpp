// The same bytes, however a training is run.
#include <doctest/doctest.h>

#include <cmath>

#include "minim/amp/precision.h"
#include "minim/core/parallel.h"
#include "minim/models/language_model.h"
#include "minim/models/model_file.h"
#include "minim/models/read_file.h"
#include "minim/ops/call.h"
#include "minim/ops/functional.h"
#include "minim/optim/clip.h"
#include "minim/optim/optimizer.h"
#include "minim/tests/temp_dir.h"

using namespace minim;

namespace {

constexpr const char* kModes[] = {"fp32",        "amp-bf16",    "amp-fp16",
                                  "bf16-master", "fp16-master", "bf16-sr"};
constexpr models::Family kFamilies[] = {models::Family::gpt, models::Family::llama};

struct Way {
  int threads = 1;
  bool recompute = false, fused = true;
};

models::DecoderConfig sizes(models::Family family, Index block, Index embd) {
  return {.vocab = 13,
          .block = block,
          .layers = 2,
          .heads = 4,
          .embd = embd,
          .family = family,
          .kv_heads = family == models::Family::llama ? 2 : 0};
}

std::vector<int32_t> some_tokens(int n) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(int32_t(int64_t(i) * i * i % 13));
  return tokens;
}

/// The weights file after three steps with dropout, clipping, loss scale and masters as the
/// precision has them; large enough that kernels are cut into several chunks.
std::string weights(models::Family family, const std::string& mode, const Way& way) {
  const amp::Precision precision = amp::resolve_precision(mode);
  const test::TempDir temp;
  const int before = threads();
  set_threads(way.threads);
  manual_seed(5);
  models::DecoderConfig config = sizes(family, 64, 64);
  config.dropout = 0.1;
  config.checkpoint_activations = way.recompute;
  const auto model = models::make_decoder(config);
  if (precision.params != DType::f32) model->to(precision.params);
  optim::Optimizer optimizer(optim::kAdamW, {{model->parameters()}},
                             {.lr = 3e-3,
                              .masters = precision.masters,
                              .stochastic_rounding = precision.stochastic,
                              .fused = way.fused});
  amp::GradScaler scaler(precision.scaler_config);
  const std::vector<int32_t> tokens = some_tokens(400);
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < 8; ++i) starts.push_back(31 * i + step);
    const models::Batch batch = models::make_batch(tokens, starts, config.block);
    optimizer.zero_grad();
    Tensor loss;
    {
      amp::Autocast casts(precision.autocast ? precision.compute : DType::f32, precision.policy);
      loss = cross_entropy((*model)(batch.inputs), batch.targets);
    }
    scaler.scale(loss).backward();
    scaler.unscale(optimizer);
    scaler.step(optimizer, optim::clip_coefficient(optim::grad_norm(optimizer.parameters()), 0.5));
    scaler.update();
  }
  CHECK(optimizer.applied_steps() > 0);
  models::save_model(temp.path / "model.safetensors", *model, models::Tokenizer::none(13));
  set_threads(before);
  return models::read_file(temp.path / "model.safetensors", "");
}

void check_ways(std::initializer_list<Way> ways) {
  for (models::Family family : kFamilies)
    for (const char* mode : kModes) {
      CAPTURE(models::name_of(family));
      CAPTURE(mode);
      const std::string plain = weights(family, mode, {});
      for (const Way& way : ways) {
        CAPTURE(way.threads);
        CHECK((weights(family, mode, way) == plain));
      }
    }
}

}  // namespace

TEST_CASE("2 and 4 threads write the weights file of 1 for GPT and Llama in each precision") {
  check_ways({{.threads = 2}, {.threads = 4}});
}

TEST_CASE("recompute writes the same weights file for GPT and Llama in each precision") {
  check_ways({{.recompute = true}, {.threads = 4, .recompute = true}});
}

TEST_CASE("the reference optimizer writes the weights file of the fused one in each precision" *
          doctest::test_suite("host")) {
  check_ways({{.fused = false}, {.threads = 4, .fused = false}});
}

TEST_CASE("every split of a batch into equal parts has its gradients within 1e-6 of the largest") {
  constexpr size_t kBatch = 8;
  constexpr Index kBlock = 12;
  const std::vector<int32_t> tokens = some_tokens(150);
  std::vector<int64_t> starts;
  for (size_t i = 0; i < kBatch; ++i) starts.push_back(int64_t(17 * i));
  for (models::Family family : kFamilies) {
    CAPTURE(models::name_of(family));
    manual_seed(6);
    const auto model = models::make_decoder(sizes(family, kBlock, 32));
    auto gradients = [&](size_t parts) {
      for (size_t i = 0; i < parts; ++i) {
        const auto part = std::span(starts).subspan(i * kBatch / parts, kBatch / parts);
        const models::Batch batch = models::make_batch(tokens, part, kBlock);
        (cross_entropy((*model)(batch.inputs), batch.targets) / double(parts)).backward();
      }
      std::vector<double> all;
      for (const Tensor& p : model->parameters()) {
        for (double g : p.grad().to_vector()) all.push_back(g);
        p.set_grad({});
      }
      return all;
    };
    const std::vector<double> whole = gradients(1);
    double largest = 0;
    for (double g : whole) largest = std::max(largest, std::abs(g));
    for (size_t parts : {2, 4, 8}) {
      const std::vector<double> split = gradients(parts);
      double worst = 0;
      for (size_t i = 0; i < whole.size(); ++i)
        worst = std::max(worst, std::abs(split[i] - whole[i]));
      CAPTURE(parts);
      CHECK(worst <= 1e-6 * largest);
      CHECK(worst > 0);  // the sums are others
    }
  }
}
