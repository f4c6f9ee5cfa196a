// tools/trainer.h -- one training run: the loop's body, its counters, and its checkpoints.
// Everything that a step does is a function of (weights, optimizer, scaler, step number, seed), so
// a resumed run repeats the interrupted one bit for bit.
#pragma once
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

#include "minim/amp/grad_scaler.h"
#include "minim/amp/precision.h"
#include "minim/core/probe.h"
#include "minim/core/profile.h"
#include "minim/models/dataset.h"
#include "minim/models/decoder.h"
#include "minim/models/language_model.h"
#include "minim/optim/ema.h"
#include "minim/optim/schedule.h"
#include "minim/tools/config.h"
#include "minim/tools/loss_watch.h"
#include "minim/tools/terminal.h"

namespace minim {

/// Counts what rounding gradients to 16 bits loses: entries that were not 0 in fp32 and are 0 as
/// stored.
class UnderflowProbe : public Probe {
 public:
  void stored_half(int64_t nonzero, int64_t lost) override {
    nonzero_.fetch_add(nonzero, std::memory_order_relaxed);
    lost_.fetch_add(lost, std::memory_order_relaxed);
  }
  int64_t nonzero() const { return nonzero_; }
  int64_t lost() const { return lost_; }
  double share() const { return nonzero_ > 0 ? double(lost_) / double(nonzero_) : 0; }
  void set(int64_t nonzero, int64_t lost) { nonzero_ = nonzero, lost_ = lost; }

 private:
  std::atomic<int64_t> nonzero_{0}, lost_{0};
};

optim::Schedule schedule_of(const TrainConfig::Train& train);

class Trainer {
 public:
  /// @throws Error when the data is too short or the model's sizes do not fit.
  explicit Trainer(const TrainConfig& config);

  /// One optimizer step over accum micro-batches; nullopt when a signal asked to stop among them:
  /// it is then as if the step had not begun. @throws Error when the run is broken, naming the
  /// cause.
  std::optional<StepReport> step();
  models::Evaluation evaluate();  ///< of the averaged weights where they are kept

  /// Writes dir/checkpoint whole, or leaves the one before.
  void save(const std::filesystem::path& dir) const;
  /// Goes on from dir/checkpoint, or from the one before where that is damaged. The result has a
  /// line for that, and one for the settings that are others than before; "" where there is nothing
  /// to say. @throws Error when there is no checkpoint, or it was made with settings that a run
  /// keeps (OnResume) or with other data, naming each difference.
  std::string resume(const std::filesystem::path& dir);

  int64_t step_count() const { return step_; }
  int64_t skipped() const { return skipped_; }
  double loss() const { return loss_; }  ///< of the last step's batch
  int64_t tokens_per_step() const {
    return config_.train.batch * config_.model.block * config_.train.accum;
  }
  /// The exact loss of the data's source on the validation tokens; only for the toy language.
  std::optional<double> floor() const { return floor_; }
  const models::Decoder& model() const { return *model_; }
  models::Decoder& model() { return *model_; }
  const models::Dataset& data() const { return data_; }
  const amp::Precision& precision() const { return precision_; }
  const amp::GradScaler& scaler() const { return scaler_; }
  const UnderflowProbe& underflow() const { return underflow_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  /// Of the steps so far; null unless the run is profiled.
  const Profile* profile() const { return profile_.get(); }

 private:
  /// Where the sequences of a micro-batch of this step begin in the training tokens.
  std::vector<int64_t> starts_of(int64_t micro) const;
  /// Of the checkpoint in `at`, if this run can go on from it; what is to be told. See resume().
  std::string go_on_from(const std::filesystem::path& at, const std::filesystem::path& dir);
  /// What anomaly mode says of this step, gone through once more; "" where it finds nothing.
  std::string first_bad_op();
  /// Forward and backward of one micro-batch; the loss, and the largest |logit| into `max_logit`.
  double micro_step(int64_t micro, double& max_logit);

  TrainConfig config_;
  models::Dataset data_;
  std::string data_hash_;
  amp::Precision precision_;
  std::optional<double> floor_;
  std::unique_ptr<models::Decoder> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::Ema> ema_;
  optim::Schedule schedule_;
  amp::GradScaler scaler_;
  UnderflowProbe underflow_;
  std::unique_ptr<Profile> profile_;
  LossWatch watch_;
  int64_t step_ = 0, skipped_ = 0;
  int64_t micro_batches_ = 0, sequences_ = 0;  ///< so far; sequences only of --shuffle epoch
  double loss_ = 0;
};

}  // namespace minim
