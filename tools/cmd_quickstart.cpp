// minim quickstart: the toy language in four precisions side by side, and what the difference is.
#include <fmt/format.h>
#include <algorithm>
#include <iostream>

#include "minim/models/language_model.h"
#include "minim/models/model_file.h"
#include "minim/tools/commands.h"
#include "minim/tools/run.h"
#include "minim/tools/terminal.h"

namespace minim {
namespace {

struct Column {
  const char* title;
  std::vector<std::string> flags;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all{
      {"fp32", {"--precision", "fp32"}},
      {"amp-bf16", {"--precision", "amp-bf16"}},
      {"amp-fp16", {"--precision", "amp-fp16"}},
      {"amp-fp16, no loss scale", {"--precision", "amp-fp16", "--loss-scale", "none"}},
  };
  return all;
}

std::string sample_of(const std::string& dir) {
  models::LoadedModel loaded = models::load_model(dir);
  std::vector<int32_t> start = loaded.tokenizer.encode("\n");
  std::vector<int32_t> tokens =
      models::generate(*loaded.model, start, {.count = 160, .temperature = 0.8});
  return loaded.tokenizer.decode(tokens);
}

/// A setting in which fp16 needs its loss scale: the mean over 393216 tokens makes gradients small
/// (docs/4-loss-scaling.md). With a quarter of them a tenth of the entries is lost, and which run
/// ends lower is left to chance.
const std::vector<std::pair<std::string, std::string>>& setting() {
  static const std::vector<std::pair<std::string, std::string>> all{{"--out", "out/quickstart"},
                                                                    {"--layers", "1"},
                                                                    {"--heads", "2"},
                                                                    {"--embd", "32"},
                                                                    {"--block", "64"},
                                                                    {"--batch", "128"},
                                                                    {"--accum", "48"},
                                                                    {"--steps", "30"},
                                                                    {"--lr", "1e-2"},
                                                                    {"--warmup", "3"},
                                                                    {"--log-every", "3"},
                                                                    {"--eval-every", "0"}};
  return all;
}

}  // namespace

int cmd_quickstart(Args args) {
  std::vector<std::string> base(args.begin(), args.end());
  for (const auto& [flag, value] : setting())
    if (std::none_of(base.begin(), base.end(), [&flag = flag](const std::string& word) {
          return word == flag || word.starts_with(flag + "=");
        }))
      base.insert(base.end(), {flag, value});
  Table table({"precision", "loss above floor", "gradients lost to 0", "skipped steps", "tokens/s",
               "peak MB"});
  std::vector<std::pair<std::string, std::string>> samples;
  for (size_t i = 0; i < columns().size(); ++i) {
    const Column& column = columns()[i];
    std::vector<std::string> flags = base;
    flags.insert(flags.end(), column.flags.begin(), column.flags.end());
    std::optional<TrainPlan> plan = plan_training(flags);
    if (!plan) return 0;
    plan->config.run.out += fmt::format("/{}-{}", i + 1, plan->config.amp.precision);
    std::cout << fmt::format("\n== {} ==\n", column.title);
    Summary s = run_training(*plan, std::cout);
    if (!s.finished) return 0;
    double loss = s.floor ? s.val_loss - *s.floor : s.val_loss;
    table.add({column.title, number(loss, ".4f"), fmt::format("{:.2f} %", 100 * s.underflow_share),
               std::to_string(s.skipped_steps), fmt::format("{:.0f}", s.tokens_per_second),
               fmt::format("{:.1f}", double(s.peak_bytes) / 1e6)});
    samples.emplace_back(column.title, sample_of(plan->config.run.out));
  }
  for (auto& [title, text] : samples)
    std::cout << fmt::format("\n-- a sample, {}:\n{}\n", title, text);
  std::cout << "\n" << table.str();
  return 0;
}

}  // namespace minim
