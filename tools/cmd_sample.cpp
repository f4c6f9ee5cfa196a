// minim sample: continues a prompt with a trained model, token by token.
#include <iostream>
#include <limits>

#include "minim/core/parallel.h"
#include "minim/models/language_model.h"
#include "minim/tools/commands.h"
#include "minim/tools/text_stream.h"

namespace minim {
namespace {

struct Options {
  std::string model, prompt;
  models::Sampling sampling;
  std::int64_t seed = std::int64_t(models::Sampling{}.seed), threads = 0;
  bool strict = false;
};

std::vector<Setting> settings_of(Options& o) {
  constexpr Range kFromZero = {.low = 0, .high = 1e15};
  return {
      model_setting(o.model),
      {.name = "prompt",
       .section = "",
       .value = &o.prompt,
       .help = "text to continue; without it, a new line or the first token of the vocabulary",
       .also = {"start", "text"},
       .any_bytes = true},
      {.name = "count",
       .section = "",
       .value = &o.sampling.count,
       .help = "tokens to make",
       .range = kFromZero,
       .also = {"tokens", "max-new-tokens", "length", "num-samples"}},
      {.name = "temperature",
       .section = "",
       .value = &o.sampling.temperature,
       .help = "divides the logits; 0: always the likeliest token",
       .range = Range{.low = 0, .high = std::numeric_limits<double>::max()}},
      {.name = "top-k",
       .section = "",
       .value = &o.sampling.top_k,
       .help = "draw from this many likeliest tokens; 0: from all",
       .range = kFromZero},
      {.name = "seed",
       .section = "",
       .value = &o.seed,
       .help = "the same seed writes the same text",
       .range = kFromZero},
      {.name = "cache",
       .section = "",
       .value = &o.sampling.cache,
       .help = "keep keys and values of earlier tokens; the text is the same without, only slower",
       .negative = "no-cache"},
      strict_setting(o.strict),
      threads_setting(o.threads),
  };
}

/// What to begin with when nobody says.
std::vector<int32_t> default_prompt(const models::Tokenizer& tokenizer) {
  if (tokenizer.kind() == models::TokenizerKind::none) return {0};
  try {
    const std::vector<int32_t> line_end = tokenizer.encode("\n");
    return line_end.empty() ? std::vector<int32_t>{0} : line_end;
  } catch (const Error&) {
    return {0};  // a text without line ends
  }
}

std::vector<int32_t> encoded_prompt(const models::Tokenizer& tokenizer, const std::string& prompt) {
  try {
    std::vector<int32_t> tokens = tokenizer.encode(prompt);
    if (tokens.empty()) fail("it has no tokens");
    return tokens;
  } catch (const Error& error) {
    fail("--prompt: ", error.what());
  }
}

}  // namespace

int cmd_sample(Args args) {
  Options options;
  const std::vector<Setting> settings = settings_of(options);
  const auto flags = read_flags(settings, args, "sample", "Writes text with a trained model.");
  if (!flags) return 0;
  const Sources sources = assign_all(settings, std::span(&*flags, 1));
  if (options.model.empty()) fail("--model is missing: give the --out directory of a training run");
  const bool draws = options.sampling.temperature > 0;
  refuse_unused(sources, {{"top-k", draws, "drawing (a --temperature above 0)"},
                          {"seed", draws, "drawing (a --temperature above 0)"}});
  set_threads(int(options.threads));
  options.sampling.seed = uint64_t(options.seed);

  const models::LoadedModel loaded = load_model_to_use(options.model, options.strict);
  const models::Tokenizer& tokenizer = loaded.tokenizer;
  const bool prompted = !options.prompt.empty();
  const std::vector<int32_t> prompt =
      prompted ? encoded_prompt(tokenizer, options.prompt) : default_prompt(tokenizer);
  const std::string_view between =
      tokenizer.kind() == models::TokenizerKind::none ? " " : "";  // numbers, not text
  {
    TextStream text(std::cout);
    if (prompted) text.write(options.prompt);
    models::generate(*loaded.model, prompt, options.sampling, [&](int32_t token) {
      text.write(between);
      text.write(tokenizer.text_of(token));
    });
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace minim
