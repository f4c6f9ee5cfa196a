// tools/config.h -- every setting of `minim train`. Values come from the defaults below, then
// --config FILE.toml, then the flags; each remembers where it came from, so that a contradiction
// can name both sides.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minim/tools/settings.h"

namespace minim {

struct TrainConfig {
  struct Input {
    std::vector<std::string> data = {"toy"};  // texts, token files, or the bundled toy language
    std::string val_data = "none";
    double val_fraction = 0.1;
    std::string shuffle = "random";
    std::string tokenizer = "auto";
    std::int64_t vocab = 0;  // 0: the tokenizer's or the token file's
    std::int64_t toy_tokens = 200000;
    bool is_toy() const { return data == std::vector<std::string>{"toy"}; }
    bool is_tokens() const { return !data.empty() && data.front().ends_with(".bin"); }
    bool operator==(const Input&) const = default;
  } input;
  struct Model {
    std::int64_t layers = 2, heads = 4, embd = 64, block = 64;
    double dropout = 0;
    bool bias = true, tied = true;
    std::string model = "gpt", attention = "fused";
    std::int64_t kv_heads = 0;
    bool operator==(const Model&) const = default;
  } model;
  struct Train {
    std::int64_t steps = 500, batch = 16, accum = 1;
    std::string optimizer = "adamw", schedule = "cosine";
    double lr = 3e-3, min_lr = 0, decay_share = 0.2;
    std::int64_t warmup = 0;
    double beta1 = 0.9, beta2 = 0.99, eps = 1e-8, weight_decay = 0.1, clip = 1, ema = 0;
    bool amsgrad = false, nesterov = false;
    std::int64_t seed = 1337;
    bool operator==(const Train&) const = default;
  } train;
  struct Amp {
    std::string precision = "fp32", loss_scale = "auto", policy = "torch";
    bool operator==(const Amp&) const = default;
  } amp;
  struct Run {
    std::string out = "out/run", device = "cpu";
    std::int64_t threads = 0, log_every = 10, eval_every = 100, checkpoint_every = 200;
    bool grad_stats = false;
    bool checkpoint_activations = false, anomaly = false, profile = false;
    std::string profile_trace = "none";
    bool is_profiled() const { return profile || profile_trace != "none"; }
    bool operator==(const Run&) const = default;
  } run;
  std::string config, resume;  // of this call only; never in a file
  bool operator==(const TrainConfig&) const = default;
};

/// The table, bound to `config`.
std::vector<Setting> settings_of(TrainConfig& config);

/// A configuration that is in itself sound, and where its values came from.
struct TrainPlan {
  TrainConfig config;
  Sources sources;
};

/// Reads the flags of `minim train` and the file that --config names. --resume DIR without --config
/// reads DIR/config.toml, and without --out goes on in DIR. nullopt: --help was asked for and has
/// been printed. Throws Error.
std::optional<TrainPlan> plan_training(Args args);

/// The layers over the defaults. Throws Error, also where a flag has no effect.
TrainPlan plan_of(const TrainConfig& defaults, std::span<const Layer> layers);

/// Throws Error where two settings contradict each other, naming both with their values and
/// sources.
void check_contradictions(const TrainPlan& plan);

/// What --loss-scale comes to: "auto" is "dynamic" where fp16 needs it and "none" elsewhere.
std::string resolved_loss_scale(const TrainConfig& config);

/// Files are looked up from where the run began: the same with absolute paths.
TrainConfig with_whole_paths(TrainConfig config);
/// The plan as config.toml, with whole paths, so that it means the same from every
/// directory; reads back to the same configuration (but for `config` and `resume`).
std::string to_toml(const TrainPlan& plan);

/// What to_toml() wrote. @param file its name, for messages. Throws Error.
TrainConfig config_from_toml(std::string_view toml, const std::string& file);

/// The settings that a resumed run has otherwise than the one before it.
struct Changes {
  std::vector<std::string> refused;  // "heads: 2 in the checkpoint, 4 now"
  std::vector<std::string> taken;    // "steps 10 -> 20"
};
/// `on_resume` in the table of settings says which are which.
Changes changes_of(TrainConfig before, TrainConfig now);

}  // namespace minim
