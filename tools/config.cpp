#include "minim/tools/config.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "minim/core/error.h"

namespace minim {
namespace {

bool uses_fp16(const TrainConfig& config) {
  return config.amp.precision.find("fp16") != std::string::npos;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.peek();  // a directory opens, but cannot be read
  if (file.fail()) fail("cannot read the configuration '", path, "': is the name right?");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

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

std::optional<TrainPlan> plan_training(Args args) {
  TrainPlan plan;
  const std::vector<Setting> settings = settings_of(plan.config);
  auto flags = read_flags(settings, args, "train",
                          "Trains a small GPT on a text, on token files or on the toy language.");
  if (!flags) return std::nullopt;
  const std::string resume = given(*flags, "resume");
  std::string file = given(*flags, "config");
  if (file.empty() && !resume.empty()) file = resume + "/config.toml";
  if (!resume.empty() && given(*flags, "out").empty())
    flags->push_back({"out", resume, "--resume"});

  std::vector<Layer> layers;
  if (!file.empty()) layers.push_back(read_toml(settings, read_file(file), file));
  layers.push_back(std::move(*flags));
  plan.sources = assign_all(settings, layers);
  check_contradictions(plan);
  return plan;
}

std::string to_toml(const TrainPlan& plan) {
  TrainConfig config = plan.config;
  return write_toml(settings_of(config), plan.sources);
}

}  // namespace minim
