// amp/precision.h -- the one place that decides in which dtypes a run keeps its parameters,
// computes and steps.
#pragma once
#include <string>
#include <string_view>

#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"

namespace minim::amp {

struct Precision {
  std::string mode;
  DType params = DType::f32;   ///< as the model stores them
  DType compute = DType::f32;  ///< of matrix products and what follows them
  bool autocast = false;       ///< params differ from compute: ops cast by the policy
  bool masters = false;        ///< the optimizer holds fp32 copies of the parameters
  bool stochastic = false;     ///< the optimizer rounds parameters stochastically
  Policy policy = Policy::torch;
  ScalerConfig scaler_config{.enabled = false};  ///< disabled where no loss scale is wanted

  bool scaler() const { return scaler_config.enabled; }
};

/// @param mode fp32, amp-bf16, amp-fp16, bf16-master, fp16-master or bf16-sr
/// @param loss_scale auto (dynamic for fp16, else none), dynamic, none, or a number that stays
/// @param policy torch or lean
/// @throws Error for another word, or a loss scale in a mode that has fp32's range.
Precision resolve_precision(std::string_view mode, std::string_view loss_scale = "auto",
                            std::string_view policy = "torch");

/// One line that says all of it.
std::string describe(const Precision& precision);

}  // namespace minim::amp
