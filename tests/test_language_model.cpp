#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "minim/autograd/node.h"
#include "minim/models/dataset.h"
#include "minim/models/language_model.h"
#include "minim/ops/call.h"

using namespace minim;
using namespace minim::models;

namespace {

constexpr DecoderConfig kTiny{.vocab = 11, .block = 8, .layers = 1, .heads = 2, .embd = 16};

/// Weights large enough that the predictions are far from uniform.
std::unique_ptr<Decoder> tiny_model(DecoderConfig config = kTiny) {
  manual_seed(5);
  auto model = make_decoder(config);
  NoGrad no_recording;
  for (Tensor p : model->parameters())
    if (p.rank() == 2) p.mul_(15.0);
  return model;
}

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(int32_t((i * i + 3 * i) % 11));
  return tokens;
}

/// The logits behind the last of `context`, by a call of the model itself.
std::vector<double> last_logits(const Decoder& model, std::span<const int32_t> context) {
  NoGrad no_recording;
  Tensor x = empty({1, Index(context.size())}, DType::i64);
  std::ranges::copy(context, x.span<int64_t>().begin());
  const std::vector<double> all = model(x).to_vector();
  return {all.end() - model.config().vocab, all.end()};
}

std::vector<double> softmax_of(std::vector<double> logits) {
  const double top = std::ranges::max(logits);
  double sum = 0;
  for (double& v : logits) sum += v = std::exp(v - top);
  for (double& v : logits) v /= sum;
  return logits;
}

amp::Precision precision(const std::string& mode) {
  return amp::resolve_precision(mode, "auto", "torch");
}

}  // namespace

TEST_CASE("language model: a batch holds each sequence and the tokens that follow") {
  const std::vector<int32_t> tokens = {5, 6, 7, 8, 9};
  const std::vector<int64_t> starts = {0, 2};
  const Batch batch = make_batch(tokens, starts, 2);
  CHECK(batch.inputs.shape() == Shape{2, 2});
  CHECK(batch.inputs.to_vector() == std::vector<double>{5, 6, 7, 8});
  CHECK(batch.targets.to_vector() == std::vector<double>{6, 7, 8, 9});
}

TEST_CASE("language model: evaluation counts every token once, in any batch, as a plain loop does" *
          doctest::test_suite("host")) {
  const auto model = tiny_model();
  const std::vector<int32_t> tokens = some_tokens(29);  // windows of 8, 8, 8 and 4
  double sum = 0, largest = 0;
  for (size_t t = 1; t < tokens.size(); ++t) {
    const size_t start = (t - 1) / 8 * 8;
    const auto logits = last_logits(*model, std::span(tokens).subspan(start, t - start));
    sum -= std::log(softmax_of(logits)[size_t(tokens[t])]);
    for (double v : logits) largest = std::max(largest, std::fabs(v));
  }
  for (Index batch : {1, 2, 3, 100}) {
    const Evaluation e = evaluate(*model, tokens, 8, batch, precision("fp32"));
    CHECK(e.tokens == 28);
    CHECK(e.loss == doctest::Approx(sum / 28).epsilon(1e-6));
    CHECK(e.max_logit == doctest::Approx(largest).epsilon(1e-6));
  }
}

TEST_CASE("language model: evaluation is without dropout and leaves the mode as it was") {
  DecoderConfig config = kTiny;
  config.dropout = 0.5;
  const auto dropping = tiny_model(config), plain = tiny_model();
  const std::vector<int32_t> tokens = some_tokens(20);
  for (bool training : {true, false}) {
    dropping->train(training);
    CHECK(evaluate(*dropping, tokens, 8, 2, precision("fp32")).loss ==
          evaluate(*plain, tokens, 8, 2, precision("fp32")).loss);
    CHECK(dropping->training() == training);
  }
}

TEST_CASE("language model: evaluation under autocast is near fp32 but not it") {
  const auto model = tiny_model();
  const std::vector<int32_t> tokens = some_tokens(29);
  const double exact = evaluate(*model, tokens, 8, 4, precision("fp32")).loss;
  for (const char* mode : {"amp-bf16", "amp-fp16"}) {
    const double loss = evaluate(*model, tokens, 8, 4, precision(mode)).loss;
    CHECK(loss != exact);
    CHECK(loss == doctest::Approx(exact).epsilon(0.05));
  }
}

TEST_CASE("language model: a broken model's largest logit is NaN, wherever it breaks") {
  const auto model = tiny_model();
  std::vector<int32_t> tokens(17, 1);
  tokens[3] = 7;
  {
    NoGrad no_recording;
    Tensor table = model->parameters().front();
    table.select(0, 7).fill_(NAN);
  }
  const Evaluation e = evaluate(*model, tokens, 8, 1, precision("fp32"));
  CHECK(std::isnan(e.loss));
  CHECK(std::isnan(e.max_logit));
}

TEST_CASE("language model: the same seed generates the same tokens, and each is heard once") {
  const auto model = tiny_model();
  std::vector<int32_t> heard;
  const auto first =
      generate(*model, {1, 2}, {.count = 30}, [&](int32_t t) { heard.push_back(t); });
  CHECK(first.size() == 32);
  CHECK(std::equal(heard.begin(), heard.end(), first.begin() + 2, first.end()));
  CHECK((first[0] == 1 && first[1] == 2));
  CHECK(first == generate(*model, {1, 2}, {.count = 30}));
  CHECK(first != generate(*model, {1, 2}, {.count = 30, .seed = 7}));
  CHECK(generate(*model, {1, 2}, {.count = 0}) == std::vector<int32_t>{1, 2});
}

TEST_CASE("language model: temperature 0 and top-k 1 both take the likeliest token" *
          doctest::test_suite("host")) {
  const auto model = tiny_model();
  std::vector<int32_t> expected = {4};
  for (int i = 0; i < 6; ++i) {
    const auto logits = last_logits(*model, expected);
    expected.push_back(int32_t(std::ranges::max_element(logits) - logits.begin()));
  }
  CHECK(generate(*model, {4}, {.count = 6, .temperature = 0}) == expected);
  CHECK(generate(*model, {4}, {.count = 6, .temperature = 3, .top_k = 1}) == expected);
}

TEST_CASE("language model: of a long prompt the end counts, from half a block to a whole one" *
          doctest::test_suite("host")) {
  const auto model = tiny_model();
  const std::vector<int32_t> prompt = some_tokens(19);  // leaves out 12, a multiple of 4
  const auto all = generate(*model, prompt, {.count = 9, .temperature = 0});
  const auto end =
      generate(*model, {prompt.begin() + 12, prompt.end()}, {.count = 9, .temperature = 0});
  CHECK(std::equal(all.end() - 9, all.end(), end.end() - 9, end.end()));
  const std::vector<double> next = last_logits(*model, std::span(all).subspan(12, 8));
  CHECK(all[20] == int32_t(std::ranges::max_element(next) - next.begin()));
}

TEST_CASE("language model: the cache changes no bit of a logit and no token" *
          doctest::test_suite("host")) {
  DecoderConfig llama = kTiny;
  llama.family = Family::llama;
  llama.kv_heads = 1;
  for (const DecoderConfig& config : {kTiny, llama})
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(name_of(config.family));
      CAPTURE(name_of(dtype));
      const auto model = tiny_model(config);
      model->to(dtype);
      NoGrad no_recording;
      const std::vector<int32_t> tokens = some_tokens(8);
      KeyValueCache cache;
      for (Index from = 0, to = 3; to <= 8; from = to++) {
        Tensor x = empty({1, to - from}, DType::i64);
        std::copy(tokens.begin() + from, tokens.begin() + to, x.span<int64_t>().begin());
        const std::vector<double> cached = (*model)(x, &cache).select(1, -1).flatten().to_vector();
        CHECK(cached == last_logits(*model, std::span(tokens).first(size_t(to))));
      }
      for (double temperature : {0.0, 1.0}) {
        Sampling how{.count = 30, .temperature = temperature};
        const auto with = generate(*model, {3, 1}, how);
        how.cache = false;
        CHECK(generate(*model, {3, 1}, how) == with);
      }
    }
}

TEST_CASE("language model: Llama has no biases and shares keys and values among heads") {
  DecoderConfig config = kTiny;
  config.family = Family::llama;
  config.kv_heads = 1;
  const auto model = make_decoder(config);
  for (const auto& [name, p] : model->named_parameters()) {
    CHECK(name.find("bias") == std::string::npos);
    CHECK(name.find("positions") == std::string::npos);
    if (name == "blocks.0.attn.qkv.weight") CHECK(p.shape() == Shape{16 + 2 * 8, 16});
    if (name == "blocks.0.mlp.gate.weight") CHECK(p.shape() == Shape{64, 16});
  }
  config.heads = 3;
  CHECK_THROWS_WITH_AS(make_decoder(config), doctest::Contains("not divisible by heads 3"), Error);
  config.heads = 2, config.kv_heads = 3;
  CHECK_THROWS_WITH_AS(make_decoder(config), doctest::Contains("share 3 heads"), Error);
}

TEST_CASE("language model: a cache refuses more than the block and more than one token at a time") {
  const auto model = tiny_model();
  NoGrad no_recording;
  KeyValueCache cache;
  (*model)(zeros({1, 7}, DType::i64), &cache);
  CHECK_THROWS_WITH_AS((*model)(zeros({1, 2}, DType::i64), &cache), doctest::Contains("block of 8"),
                       Error);
  cache.clear();
  (*model)(zeros({1, 5}, DType::i64), &cache);
  CHECK_THROWS_WITH_AS((*model)(zeros({1, 2}, DType::i64), &cache),
                       doctest::Contains("one more at a time"), Error);
}

TEST_CASE("language model: tokens are drawn as often as temperature and top-k say" *
          doctest::test_suite("host")) {
  const auto model = tiny_model();
  constexpr int kDraws = 1000;
  const std::vector<int32_t> prompt = {3, 1};
  std::vector<double> logits = last_logits(*model, prompt);
  for (Index top_k : {0, 3}) {
    std::vector<double> scaled = logits, sorted = logits;
    std::ranges::sort(sorted, std::greater());
    for (double& v : scaled)
      v = top_k && v < sorted[size_t(top_k - 1)] ? -INFINITY : v / 2;  // temperature 2
    const std::vector<double> share = softmax_of(scaled);
    std::vector<int> drawn(11);
    for (int seed = 0; seed < kDraws; ++seed)
      ++drawn[size_t(generate(*model, prompt, {1, 2.0, top_k, uint64_t(seed)}).back())];
    for (size_t v = 0; v < 11; ++v) {
      const double sigma = std::sqrt(kDraws * share[v] * (1 - share[v]));
      CHECK(std::fabs(drawn[v] - kDraws * share[v]) <= 4 * sigma);
    }
  }
}

TEST_CASE("language model: generation refuses what makes no sense") {
  const auto model = tiny_model();
  CHECK_THROWS_WITH_AS(generate(*model, {}, {}), doctest::Contains("at least one token"), Error);
  CHECK_THROWS_WITH_AS(generate(*model, {11}, {}), doctest::Contains("vocabulary of 11"), Error);
  CHECK_THROWS_WITH_AS(generate(*model, {-1}, {}), doctest::Contains("vocabulary of 11"), Error);
  for (double t : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_WITH_AS(generate(*model, {1}, {.temperature = t}),
                         doctest::Contains("temperature"), Error);
  CHECK_THROWS_AS(generate(*model, {1}, {.top_k = -1}), Error);
  CHECK_THROWS_AS(generate(*model, {1}, {.count = -1}), Error);
  NoGrad no_recording;
  for (Tensor p : model->parameters()) p.fill_(NAN);
  CHECK_THROWS_WITH_AS(generate(*model, {1}, {}), doctest::Contains("not finite"), Error);
}
