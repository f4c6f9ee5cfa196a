// tools/trainer_files.cpp -- the checkpoints of a run: what is in them, and how one is gone on
// from.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>

#include "minim/models/atomic_dir.h"
#include "minim/models/model_file.h"
#include "minim/models/read_file.h"
#include "minim/models/sync_file.h"
#include "minim/tools/train_state.h"
#include "minim/tools/trainer.h"

namespace minim {
namespace {

namespace fs = std::filesystem;

void write_state(const fs::path& file, const std::vector<optim::NamedState>& state) {
  std::vector<Tensor> keep;
  std::vector<models::Blob> blobs;
  for (const auto& [name, tensor] : state) blobs.push_back(models::lent_blob(name, tensor, keep));
  models::write_safetensors(file, blobs);
}

std::vector<optim::NamedState> read_state(const fs::path& file) {
  models::SafeTensors stored = models::SafeTensors::read(file);
  std::vector<optim::NamedState> state;
  for (const models::Blob& blob : stored.blobs())
    state.emplace_back(blob.name, models::tensor_of(blob));
  return state;
}

TrainState read_train_state(const fs::path& file) try {
  return train_state_from(models::read_file(file, "state"));
} catch (const Error& e) {
  fail("the checkpoint ", file.parent_path(), ": ", e.what());
}

/// The settings that a checkpoint was made with; those of its run where it is an older one.
std::optional<TrainConfig> settings_before(const fs::path& at, const fs::path& dir) {
  for (const fs::path& file : {at / "config.toml", dir / "config.toml"})
    if (fs::exists(file))
      return config_from_toml(models::read_file(file, "configuration"), file.string());
  return std::nullopt;
}

/// ": the rate of the next step is 0.0015, not 0", where another course of the rate says so.
std::string rate_change(const TrainConfig::Train& before, const TrainConfig::Train& now,
                        int64_t applied) {
  const double was = schedule_of(before).at(applied), is = schedule_of(now).at(applied);
  return was == is ? "" : fmt::format("; the rate of the next step is {:g}, not {:g}", is, was);
}

/// What differs, each name once.
class Differences {
 public:
  template <class Value>
  void compare(const std::string& name, const Value& saved, const Value& now) {
    if (saved != now) add(fmt::format("{}: {} in the checkpoint, {} now", name, saved, now));
  }
  void add(const std::string& line) {
    const std::string name = line.substr(0, line.find(':') + 1);
    if (std::ranges::none_of(lines_, [&](const auto& l) { return l.starts_with(name); }))
      lines_.push_back(line);
  }
  void refuse(const fs::path& dir) const {
    if (!lines_.empty())
      fail("'", dir.string(), "' cannot be resumed with these settings:",
           fmt::format("\n  {}", fmt::join(lines_, "\n  ")));
  }

 private:
  std::vector<std::string> lines_;
};

void compare_models(const models::DecoderConfig& was, const models::DecoderConfig& is,
                    Differences& found) {
  found.compare("vocab", was.vocab, is.vocab);
  found.compare("block", was.block, is.block);
  found.compare("layers", was.layers, is.layers);
  found.compare("heads", was.heads, is.heads);
  found.compare("embd", was.embd, is.embd);
  found.compare("bias", was.bias, is.bias);
  found.compare("tied", was.tied, is.tied);
  found.compare("model", std::string(name_of(was.family)), std::string(name_of(is.family)));
  found.compare("kv-heads", was.kv_heads, is.kv_heads);
}

}  // namespace

void Trainer::save(const fs::path& dir) const {
  models::AtomicDirectory checkpoint(dir / "checkpoint");
  auto save_model = [&](const char* name, const models::NamedTensors& instead) {
    models::save_model(checkpoint.staging() / name, *model_, data_.tokenizer,
                       {{"step", std::to_string(step_)}, {"precision", config_.amp.precision}},
                       instead);
  };
  save_model("model.safetensors", {});
  write_state(checkpoint.staging() / "optimizer.safetensors", optimizer_->state());
  if (ema_) {  // exact, to go on from, and as a model to use
    write_state(checkpoint.staging() / "ema.safetensors", ema_->state());
    save_model("model_ema.safetensors", ema_->averages());
  }
  const TrainState state{.step = step_,
                         .skipped = skipped_,
                         .micro_batches = micro_batches_,
                         .sequences = sequences_,
                         .loss = loss_,
                         .seed = config_.train.seed,
                         .precision = config_.amp.precision,
                         .optimizer = config_.train.optimizer,
                         .data = data_.source,
                         .data_hash = data_hash_,
                         .vocab = data_.vocab,
                         .scaler = scaler_.state(),
                         .gradients_nonzero = underflow_.nonzero(),
                         .gradients_lost = underflow_.lost()};
  models::write_file_atomically(checkpoint.staging() / "state.json", to_json(state));
  models::write_file_atomically(checkpoint.staging() / "config.toml", to_toml({config_, {}}));
  checkpoint.commit();
}

std::string Trainer::resume(const fs::path& dir) {
  std::string damage;
  std::optional<fs::path> at = models::newest_complete(dir / "checkpoint", &damage);
  if (!at)
    fail("there is no checkpoint in '", dir.string(),
         "' to resume from: a run that was killed has those of --checkpoint-every");
  const std::string told = go_on_from(*at, dir);
  if (damage.empty()) return told;
  return fmt::format("{}; going on from {}, step {}{}{}", damage, at->string(), step_,
                     told.empty() ? "" : "\n", told);
}

std::string Trainer::go_on_from(const fs::path& at, const fs::path& dir) {
  const models::LoadedModel loaded = models::load_model(at);
  const TrainState state = read_train_state(at / "state.json");
  const std::optional<TrainConfig> before = settings_before(at, dir);
  const Changes changes = before ? changes_of(*before, config_) : Changes{};
  Differences found;
  for (const std::string& line : changes.refused) found.add(line);
  compare_models(loaded.model->config(), model_->config(), found);
  found.compare("precision", state.precision, config_.amp.precision);
  found.compare("optimizer", state.optimizer, config_.train.optimizer);
  found.compare("seed", state.seed, config_.train.seed);
  found.compare("ema", fs::exists(at / "ema.safetensors"), ema_.has_value());
  if (!(loaded.tokenizer == data_.tokenizer))
    found.add("the tokenizer: its vocabulary is another one");
  if (state.data_hash.value_or(data_hash_) != data_hash_)
    found.add(fmt::format("the data: tokens of {} in the checkpoint, others of {} now", state.data,
                          data_.source));
  found.refuse(dir);

  model_->load_state_dict(loaded.model->state_dict());
  optimizer_->load_state(read_state(at / "optimizer.safetensors"));
  if (ema_) ema_->load_state(read_state(at / "ema.safetensors"));
  const TrainConfig was = before.value_or(config_);
  if (resolved_loss_scale(was) == resolved_loss_scale(config_)) scaler_.load_state(state.scaler);
  underflow_.set(state.gradients_nonzero, state.gradients_lost);
  step_ = state.step;
  skipped_ = state.skipped;
  micro_batches_ = state.micro_batches.value_or(step_ * was.train.accum);
  const int64_t in_epochs = was.input.shuffle == "epoch" ? was.train.accum * was.train.batch : 0;
  sequences_ = state.sequences.value_or(step_ * in_epochs);
  loss_ = state.loss;
  if (changes.taken.empty()) return "";
  return fmt::format("settings that are others from here on: {}{}", fmt::join(changes.taken, ", "),
                     rate_change(was.train, config_.train, optimizer_->applied_steps()));
}

}  // namespace minim
