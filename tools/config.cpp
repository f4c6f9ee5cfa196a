#include "minim/tools/config.h"

#include <fmt/format.h>

#include <filesystem>

#include "minim/core/error.h"
#include "minim/models/manifest.h"
#include "minim/models/read_file.h"
#include "minim/models/sync_file.h"
#include "minim/models/utf8.h"
#include "minim/tools/commands.h"

namespace minim {
namespace {

bool uses_fp16(const TrainConfig& config) {
  return config.amp.precision.find("fp16") != std::string::npos;
}

void check_ignored(const TrainPlan& plan) {
  const TrainConfig& c = plan.config;
  const bool toy = c.input.is_toy(), tokens = c.input.is_tokens();
  refuse_unused(plan.sources,
                {
                    {"vocab", tokens, "a token file (--data FILE.bin)"},
                    {"tokenizer", !toy && !tokens, "a text (--data FILE)"},
                    {"toy-tokens", toy, "the toy language (--data toy)"},
                    {"beta2", c.train.optimizer != "sgd", "--optimizer adamw or adam"},
                    {"eps", c.train.optimizer != "sgd", "--optimizer adamw or adam"},
                    {"amsgrad", c.train.optimizer.starts_with("adam"), "--optimizer adamw or adam"},
                    {"nesterov", !c.train.optimizer.starts_with("adam"), "--optimizer sgd or muon"},
                    {"decay-share", c.train.schedule == "wsd", "--schedule wsd"},
                    {"kv-heads", c.model.model == "llama", "--model llama"},
                    {"bias", c.model.model == "gpt", "--model gpt"},
                    {"min-lr", c.train.schedule != "constant", "a --schedule that falls"},
                    policy_use(c.amp.precision),
                });
}

/// A run's own config.toml has every setting; one that was emptied or cut would resume with
/// defaults.
void check_whole(const Layer& found, const std::string& file) {
  for (const char* name : {"input.data", "model.layers", "train.steps", "run.checkpoint-every"})
    if (given(found, name).empty())
      fail("'", file, "' lacks ", name,
           ": it was cut or edited; put it back, or name a whole file "
           "with --config");
}

/// A run goes on in its directory, of which a checkpoint is a part.
void refuse_checkpoint(const std::string& resume) {
  std::filesystem::path dir = std::filesystem::path(resume).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  if (std::filesystem::exists(dir / models::kManifestName))
    fail("--resume '", resume, "' is a checkpoint: give the directory of its run, --resume ",
         models::parent_of(dir).string());
}

}  // namespace

TrainConfig with_whole_paths(TrainConfig c) {
  const auto whole = [](std::string& path) { path = std::filesystem::absolute(path).string(); };
  if (!c.input.is_toy())
    for (std::string& file : c.input.data) whole(file);
  if (c.input.val_data != "none") whole(c.input.val_data);
  if (c.input.tokenizer.ends_with(".model")) whole(c.input.tokenizer);
  if (c.run.profile_trace != "none") whole(c.run.profile_trace);
  whole(c.run.out);
  return c;
}

std::string resolved_loss_scale(const TrainConfig& config) {
  if (config.amp.loss_scale != "auto") return config.amp.loss_scale;
  return uses_fp16(config) ? "dynamic" : "none";
}

void check_contradictions(const TrainPlan& plan) {
  TrainConfig config = plan.config;
  const std::vector<Setting> settings = settings_of(config);
  const auto show = [&](std::string_view name) {
    for (const Setting& setting : settings)
      if (setting.name == name)
        return fmt::format("{} = {} ({})", name, text(setting), source_of(plan.sources, name));
    fail("no setting is called ", name);
  };
  const auto& model = config.model;
  const auto& train = config.train;
  if (model.embd % model.heads != 0)
    fail(show("embd"), " is not divisible by ", show("heads"),
         ": each head needs the same whole share of the width");
  if (model.model == "gpt" && model.kv_heads != 0)
    fail(show("kv-heads"), " contradicts ", show("model"),
         ": a gpt has as many heads of keys and values as heads; leave --kv-heads at 0");
  if (config.input.val_data != "none") {
    if (config.input.val_fraction != TrainConfig{}.input.val_fraction)
      fail(show("val-fraction"), " contradicts ", show("val-data"), ": choose one of the two");
    if (config.input.data == TrainConfig{}.input.data)
      fail(show("val-data"), " contradicts ", show("data"),
           ": the toy language validates on its own end; give files to --data");
  }
  if (train.min_lr > train.lr)
    fail(show("min-lr"), " is above ", show("lr"), ": the rate falls from lr to min-lr");
  if (train.warmup > train.steps)
    fail(show("warmup"), " is more than ", show("steps"), ": the run would end before its warmup");
  if (resolved_loss_scale(config) != "none" && !uses_fp16(config))
    fail(show("loss-scale"), " contradicts ", show("precision"),
         ": only fp16 has too small a range to do without loss scaling; leave --loss-scale at auto "
         "or choose amp-fp16 or fp16-master");
}

TrainPlan plan_of(const TrainConfig& defaults, std::span<const Layer> layers) {
  TrainPlan plan{defaults, {}};
  plan.sources = assign_all(settings_of(plan.config), layers);
  check_contradictions(plan);
  check_ignored(plan);
  if (!models::is_utf8(to_toml(plan)))  // the settings are: what is before a relative path is not
    fail(
        "the current directory's name is not UTF-8, as config.toml is, where it would be recorded ",
        "with --out and --data: rename it, or give whole paths");
  return plan;
}

std::optional<TrainPlan> plan_training(Args args) {
  TrainConfig config;
  const std::vector<Setting> settings = settings_of(config);
  auto flags = read_flags(settings, args, "train",
                          "Trains a small GPT on a text, on token files or on the toy language.");
  if (!flags) return std::nullopt;
  const std::string resume = given(*flags, "resume");
  std::string file = given(*flags, "config");
  if (!resume.empty()) refuse_checkpoint(resume);
  const bool of_run = file.empty() && !resume.empty();
  if (of_run) file = resume + "/config.toml";
  if (!resume.empty() && given(*flags, "out").empty())
    flags->push_back({"out", resume, "--resume"});

  std::vector<Layer> layers;
  if (!file.empty())
    layers.push_back(read_toml(settings, models::read_file(file, "configuration"), file));
  if (of_run) check_whole(layers[0], file);
  layers.push_back(std::move(*flags));
  return plan_of({}, layers);
}

std::string to_toml(const TrainPlan& plan) {
  TrainConfig config = with_whole_paths(plan.config);
  return write_toml(settings_of(config), plan.sources);
}

TrainConfig config_from_toml(std::string_view toml, const std::string& file) {
  TrainConfig config;
  const std::vector<Setting> settings = settings_of(config);
  assign_all(settings, std::vector<Layer>{read_toml(settings, toml, file)});
  return config;
}

Changes changes_of(TrainConfig before, TrainConfig now) {
  before = with_whole_paths(std::move(before));
  now = with_whole_paths(std::move(now));
  const std::vector<Setting> was = settings_of(before), is = settings_of(now);
  Changes changes;
  for (size_t i = 0; i < is.size(); ++i) {
    const std::string then = text(was[i]), here = text(is[i]);
    if (then == here || is[i].on_resume == OnResume::call) continue;
    if (is[i].on_resume == OnResume::kept)
      changes.refused.push_back(
          fmt::format("{}: {} in the checkpoint, {} now", is[i].name, then, here));
    else
      changes.taken.push_back(fmt::format("{} {} -> {}", is[i].name, then, here));
  }
  return changes;
}

}  // namespace minim
