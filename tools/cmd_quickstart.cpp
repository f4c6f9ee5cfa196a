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
  const char *title, *precision, *loss_scale;
};

constexpr Column kColumns[] = {
    {"fp32", "fp32", "auto"},
    {"amp-bf16", "amp-bf16", "auto"},
    {"amp-fp16", "amp-fp16", "auto"},
    {"amp-fp16, no loss scale", "amp-fp16", "none"},
};

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
TrainConfig defaults() {
  TrainConfig c;
  c.model = {.layers = 1, .heads = 2, .embd = 32, .block = 64};
  c.train.batch = 128;
  c.train.accum = 48;
  c.train.steps = 30;
  c.train.lr = 1e-2;
  c.train.warmup = 3;
  c.run.out = "out/quickstart";
  c.run.log_every = 3;
  c.run.eval_every = 0;
  return c;
}

/// What the columns decide, and what is of one run.
constexpr std::string_view kNotHere[] = {"precision", "loss-scale", "config", "resume",
                                         "profile-trace"};

void refuse_of_one_run(const Layer& flags) {
  for (const Assignment& flag : flags)
    if (std::ranges::count(kNotHere, flag.name) > 0)
      fail("--", flag.name, " is for one run, and quickstart makes four, of these precisions: ",
           "leave it out, or use minim train");
}

TrainPlan plan_of_column(size_t i, const TrainConfig& base, Layer flags) {
  TrainConfig start = base;
  start.amp.precision = kColumns[i].precision;
  start.amp.loss_scale = kColumns[i].loss_scale;
  if (!policy_use(start.amp.precision).used)
    std::erase_if(flags, [](const Assignment& flag) { return flag.name == "policy"; });
  TrainPlan plan = plan_of(start, std::span(&flags, 1));
  plan.config.run.out += fmt::format("/{}-{}", i + 1, plan.config.amp.precision);
  return plan;
}

/// Four plans, so that what is wrong with one is told before the first runs; none for --help.
std::vector<TrainPlan> plans_of(Args args) {
  TrainConfig base = defaults();
  std::vector<Setting> settings = settings_of(base);
  std::erase_if(settings,
                [](const Setting& s) { return std::ranges::count(kNotHere, s.name) > 0; });
  for (Setting& s : settings) s.on_resume = OnResume::call;  // its help has no --resume
  const auto flags =
      read_flags(settings, args, "quickstart",
                 "Trains the toy language, or other data, in fp32, amp-bf16, amp-fp16 and amp-fp16 "
                 "without a loss scale, into OUT/1-fp32 to OUT/4-amp-fp16, and compares.");
  if (!flags) return {};
  refuse_of_one_run(*flags);
  TrainConfig given = base;
  assign_all(settings_of(given), std::span(&*flags, 1));
  base.train.warmup = std::min(base.train.warmup, given.train.steps);
  std::vector<TrainPlan> plans;
  for (size_t i = 0; i < std::size(kColumns); ++i) plans.push_back(plan_of_column(i, base, *flags));
  return plans;
}

}  // namespace

int cmd_quickstart(Args args) {
  const std::vector<TrainPlan> plans = plans_of(args);
  if (plans.empty()) return 0;
  Table table({"precision", plans[0].config.input.is_toy() ? "loss above floor" : "validation loss",
               "gradients lost to 0", "skipped steps", "tokens/s", "peak MB"});
  std::vector<std::string> samples;
  for (size_t i = 0; i < plans.size(); ++i) {
    const char* title = kColumns[i].title;
    std::cout << fmt::format("\n== {} ==\n", title);
    Summary s = run_training(plans[i], std::cout);
    if (!s.finished) return 0;
    double loss = s.floor ? s.val_loss - *s.floor : s.val_loss;
    table.add({title, number(loss, ".4f"), fmt::format("{:.2f} %", 100 * s.underflow_share),
               std::to_string(s.skipped_steps), fmt::format("{:.0f}", s.tokens_per_second),
               fmt::format("{:.1f}", double(s.peak_bytes) / 1e6)});
    samples.push_back(sample_of(plans[i].config.run.out));
  }
  for (size_t i = 0; i < samples.size(); ++i)
    std::cout << fmt::format("\n-- a sample, {}:\n{}\n", kColumns[i].title, samples[i]);
  std::cout << "\n" << table.str();
  return 0;
}

}  // namespace minim
