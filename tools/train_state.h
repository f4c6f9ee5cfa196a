// tools/train_state.h -- state.json of a checkpoint: where a run stands, besides its tensors.
#pragma once
#include <cmath>
#include <optional>
#include <string>

#include "minim/amp/grad_scaler.h"

namespace minim {

struct TrainState {
  int64_t step = 0, skipped = 0;
  /// Micro-batches so far, and sequences that were read in epochs; older files have none.
  std::optional<int64_t> micro_batches{}, sequences{};
  double loss = NAN;  ///< of the last step's batch
  int64_t seed = 0;
  std::string precision{}, optimizer{};
  std::string data{};                      ///< what it is, for people
  std::optional<std::string> data_hash{};  ///< older files have none
  int64_t vocab = 0;
  amp::ScalerState scaler{};
  int64_t gradients_nonzero = 0, gradients_lost = 0;  ///< of the UnderflowProbe
};

std::string to_json(const TrainState& state);
/// @throws Error saying what is missing or of the wrong kind or size.
TrainState train_state_from(const std::string& json);

}  // namespace minim
