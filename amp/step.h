// amp/step.h -- what a loss scaler and an optimizer say to each other. An optimizer steps by itself
// in fp32 and bf16; a scaler only adds the scale.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "minim/amp/gradients.h"

namespace minim::amp {

/// What came of one optimizer step.
struct StepResult {
  bool stepped = false;       ///< false: nothing was changed, no parameter, moment or counter
  bool found_inf = false;     ///< a gradient was not finite, here or in another process
  Finite kind = Finite::yes;  ///< of the worst value of the first bad gradient
  std::string first_bad;      ///< the first parameter whose gradient is not finite
  double scale_before = 1, scale_after = 1;  ///< the loss scale of this step and of the next
  double norm = 0;  ///< of all gradients, unscaled and not clipped, where max_norm was given
};

struct StepRequest {
  double scale = 1;  ///< the loss scale that the gradients carry and that the step divides them by
  double clip = 1;   ///< what they are multiplied by after that
  /// In place of `clip`: they are clipped to this norm, which is found on the way.
  std::optional<double> max_norm = {};
  /// Told whether a gradient is not finite; what it returns decides whether the step is skipped.
  std::function<bool(bool)> agree = {};
};

/// Anything with parameters that can be stepped.
class Stepper {
 public:
  virtual ~Stepper() = default;
  virtual std::vector<Tensor> parameters() const = 0;
  /// @throws Error when no parameter has a gradient, or one carries another loss scale than the
  /// request's.
  virtual StepResult step(const StepRequest& request) = 0;
};

}  // namespace minim::amp
