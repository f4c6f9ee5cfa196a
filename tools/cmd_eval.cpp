// minim eval: a trained model's loss on a text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "minim/core/parallel.h"
#include "minim/models/dataset.h"
#include "minim/models/language_model.h"
#include "minim/models/toy_language.h"
#include "minim/ops/functional.h"
#include "minim/tools/commands.h"
#include "minim/tools/config.h"
#include "minim/tools/sizes.h"
#include "minim/tools/terminal.h"

namespace minim {
namespace {

struct Options {
  std::string model, split = "val", precision = "fp32", policy = "torch";
  std::vector<std::string> data;
  double val_fraction = TrainConfig{}.input.val_fraction;
  std::int64_t block = 0, batch = 16, threads = 0;
  std::int64_t seed = TrainConfig{}.train.seed, toy_tokens = TrainConfig{}.input.toy_tokens;
  bool json = false, strict = false;
};

std::vector<Setting> settings_of(Options& o) {
  constexpr double kMost = 1e15;
  constexpr Range kFromZero = {.low = 0, .high = kMost};
  constexpr Range kFromOne = {.low = 1, .high = kMost};
  return {
      model_setting(o.model),
      {.name = "data",
       .section = "",
       .value = &o.data,
       .help = "UTF-8 texts or token files (.bin), read as one; or toy: the bundled toy language "
               "(required)",
       .also = {"dataset", "text", "file"}},
      {.name = "split",
       .section = "",
       .value = &o.split,
       .help = "val: the end, which training does not see; all: everything",
       .choices = {"val", "all"}},
      {.name = "val-fraction",
       .section = "",
       .value = &o.val_fraction,
       .help = "how much of the end: that of the training run",
       .range = Range{.low = 0, .high = 1, .low_open = true, .high_open = true}},
      {.name = "block",
       .section = "",
       .value = &o.block,
       .help = "context: tokens that the model sees at once; 0: the model's own",
       .range = kFromZero,
       .also = {"block-size", "context"}},
      {.name = "batch",
       .section = "",
       .value = &o.batch,
       .help = "sequences at a time",
       .range = kFromOne,
       .also = {"batch-size"}},
      {.name = "precision",
       .section = "",
       .value = &o.precision,
       .help = "number formats to compute in",
       .choices = {"fp32", "amp-bf16", "amp-fp16"},
       .also = {"dtype", "amp", "half", "fp16", "bf16", "autocast"}},
      policy_setting(o.policy),
      {.name = "seed",
       .section = "",
       .value = &o.seed,
       .help = "of the toy text: the seed of the training run",
       .range = kFromZero},
      {.name = "toy-tokens",
       .section = "",
       .value = &o.toy_tokens,
       .help = "length of the toy text",
       .range = kFromOne},
      strict_setting(o.strict),
      threads_setting(o.threads),
      json_setting(o.json),
  };
}

/// What to evaluate, and how low its loss can get where that is known.
struct Text {
  models::TokenArray tokens;
  std::string source;
  std::optional<double> floor = {};
};

bool is_toy(const Options& o) { return o.data == std::vector<std::string>{"toy"}; }

models::TokenArray chosen_part(models::Dataset data, const std::string& split) {
  if (split == "all") data.train.append(data.val);
  return split == "all" ? data.train : data.val;
}

Text load_text(const Options& o, const models::Tokenizer& tokenizer, Index block) {
  if (!is_toy(o)) {
    const models::DataFiles files{.train = o.data, .val_fraction = o.val_fraction};
    models::Dataset data = models::load_files(files, tokenizer);
    const std::string source = data.source;
    return {chosen_part(std::move(data), o.split), source};
  }
  check_bytes(8 * double(o.toy_tokens), "the tokens of --toy-tokens");
  const models::Dataset data = models::toy_language(uint64_t(o.seed), o.toy_tokens, o.val_fraction);
  const std::vector<int32_t> tokens = chosen_part(data, o.split).to_vector();
  return {tokenizer == data.tokenizer ? tokens : tokenizer.encode(data.tokenizer.decode(tokens)),
          "toy language", models::floor_nll(tokens, block)};
}

Index checked_block(const Options& o, const models::Decoder& model) {
  const Index most = model.config().block;
  if (o.block > most)
    fail("--block ", o.block, " is longer than the model's block of ", most,
         ", which is all it has positions for: give at most ", most);
  return o.block == 0 ? most : o.block;
}

void print(const Options& o, const models::LoadedModel& model, const Text& text,
           const models::Evaluation& e) {
  nlohmann::ordered_json j = {{"loss", e.loss},
                              {"tokens", e.tokens},
                              {"perplexity", std::exp(e.loss)},
                              {"max_logit", e.max_logit}};
  if (text.floor) j.update({{"floor", *text.floor}, {"above_floor", e.loss - *text.floor}});
  j.update({{"precision", o.precision},
            {"split", o.split},
            {"data", fmt::format("{}", fmt::join(o.data, ", "))}});
  if (!model.damage.empty())
    j.update({{"damage", model.damage}, {"taken_instead", model.file.string()}});
  if (o.json) {
    std::cout << j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
    return;
  }
  std::cout << fmt::format("loss {} nats per token over {} tokens of {} ({}, {})\nperplexity {}\n",
                           number(e.loss, ".4f"), e.tokens, text.source, o.split, o.precision,
                           number(std::exp(e.loss), ".4g"));
  if (text.floor)
    std::cout << fmt::format("floor {}, loss above it {}\n", number(*text.floor, ".4f"),
                             number(e.loss - *text.floor, ".4f"));
}

/// The weights that a loss that is not finite comes from.
std::string largest_weights(const models::Decoder& model) {
  std::string where;
  double most = 0;
  for (const auto& [name, values] : model.named_parameters()) {
    const double largest = std::max(max(values).item(), -min(values).item());
    if (std::isnan(most) || largest <= most) continue;
    where = name;
    most = largest;
  }
  return fmt::format("the weights of '{}' reach {}", where, number(most, "g"));
}

void check_required(const Options& o, const Sources& sources) {
  if (o.model.empty()) fail("--model is missing: give the --out directory of a training run");
  if (o.data.empty()) fail("--data is missing: give a text, a token file (.bin), or toy");
  refuse_unused(sources, {{"seed", is_toy(o), "the toy text (--data toy)"},
                          {"toy-tokens", is_toy(o), "the toy text (--data toy)"},
                          {"val-fraction", o.split == "val", "--split val"},
                          policy_use(o.precision)});
}

}  // namespace

int cmd_eval(Args args) {
  Options options;
  const std::vector<Setting> settings = settings_of(options);
  const auto flags =
      read_flags(settings, args, "eval", "Measures a trained model's loss on a text.");
  if (!flags) return 0;
  check_required(options, assign_all(settings, std::span(&*flags, 1)));
  set_threads(int(options.threads));

  const models::LoadedModel loaded = load_model_to_use(options.model, options.strict);
  loaded.model->to(DType::f32);  // exact; --precision says what it computes in
  const Index block = checked_block(options, *loaded.model);
  const Text text = load_text(options, loaded.tokenizer, block);
  const amp::Precision precision =
      amp::resolve_precision(options.precision, "none", options.policy);
  const double windows = std::ceil(double(text.tokens.size()) / double(block));
  check_forward_size(loaded.model->config(), std::min(double(options.batch), windows),
                     double(block));
  const models::Evaluation result =
      models::evaluate(*loaded.model, text.tokens, block, options.batch, precision);
  print(options, loaded, text, result);
  if (std::isfinite(result.loss)) return 0;
  std::cout << std::flush;
  std::cerr << "minim: error: the loss is " << number(result.loss, "g") << ": "
            << largest_weights(*loaded.model) << '\n';
  return 1;
}

}  // namespace minim
