// tools/run.h -- a training run from a plan to a summary: the loop around Trainer with its files,
// log and live line.
#pragma once
#include <array>
#include <iosfwd>
#include <optional>

#include "minim/core/allocator.h"
#include "minim/tools/config.h"

namespace minim {

struct Summary {
  int64_t steps = 0, skipped_steps = 0, val_tokens = 0, params = 0;
  double train_loss = 0, val_loss = 0, tokens_per_second = 0, final_scale = 1, underflow_share = 0;
  std::optional<double> floor;  ///< the source's own loss on the validation tokens
  size_t peak_bytes = 0;        ///< of tensors
  std::array<size_t, kMemoryKinds> peak_by_kind{};  ///< each kind's own
  size_t peak_resident_bytes = 0;                   ///< of the whole process
  std::string precision;
  int64_t nonfinite_since = 0;  ///< the step from which on no loss was finite; 0: it is finite
  bool finished = true;         ///< false when a signal stopped the run, which was saved
};

/// Trains as planned, in plan.config.run.out: config.toml, log.jsonl, checkpoint/, summary.json. An
/// earlier run there is moved aside, never overwritten; see run_dir.h. @throws Error for bad input,
/// and for a run that broke, naming the cause.
Summary run_training(const TrainPlan& plan, std::ostream& out);

}  // namespace minim
