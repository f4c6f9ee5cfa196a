// amp/grad_scaler.h -- dynamic loss scaling (Micikevicius et al., "Mixed precision training",
// 2018): the loss is multiplied so that small gradients survive 16 bits, and the gradients are
// divided again in fp32. How the scale moves is one pure function. In precisions that need no scale
// it is 1 and the same loop runs.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "minim/amp/step.h"

namespace minim::amp {

struct ScalerConfig {
  bool enabled =
      true;  ///< false: the scale is 1, scale() and unscale() do nothing, skips are still counted
  bool dynamic = true;  ///< false: the scale stays what it is
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;               ///< good steps in a row until the scale grows
  double min_scale = 1, max_scale = 0x1p24;     ///< growth past the cap is refused
  int64_t max_skips = 50;                       ///< in a row, at the floor: then training stops
  double warn_share = 0.05, stop_share = 0.50;  ///< skipped steps of the last kSkipWindow
};
inline constexpr int kSkipWindow = 100;

/// All that a scaler remembers from step to step; exists from the start, so that it can be saved at
/// any time.
struct ScalerState {
  double scale = 65536;
  int64_t growth_tracker = 0;  ///< good steps since the scale last moved
  int64_t skips_at_floor = 0;  ///< in a row, while a lower scale was not to be had or of no use
  int64_t seen = 0;            ///< steps since the first good one, with it
  /// The scale before a growth that no good step has confirmed yet; 0: there is none.
  double probed_from = 0;
  std::array<uint64_t, 2>
      recent{};  ///< their outcomes, the newest in bit 0 of the first word; 1 is a skip
  friend constexpr bool operator==(const ScalerState&, const ScalerState&) = default;
};

constexpr bool at_floor(double scale, const ScalerConfig& c) {
  return !c.enabled || !c.dynamic || scale <= c.min_scale;
}

/// Skipped steps among the last kSkipWindow.
constexpr int recent_skips(const ScalerState& s) {
  constexpr uint64_t older = (uint64_t{1} << (kSkipWindow - 64)) - 1;
  return std::popcount(s.recent[0]) + std::popcount(s.recent[1] & older);
}

/// Whether an overflow at this scale only says that the scale does not grow for now: it is above
/// the one at which steps were good. Such a skip is no trouble and not counted among the recent.
constexpr bool is_probe(const ScalerState& s) {
  return s.probed_from > 0 && s.scale > s.probed_from;
}

/// The state after a step. The tracker starts again where the scale moves or would.
/// @param nan_loss the loss was NaN before it was scaled: no scale helps, and none is tried.
constexpr ScalerState next(ScalerState s, bool found_inf, const ScalerConfig& c,
                           bool nan_loss = false) {
  const bool helpless = nan_loss || at_floor(s.scale, c);
  s.skips_at_floor = found_inf && helpless ? s.skips_at_floor + 1 : 0;
  const bool finding = s.seen == 0 || (is_probe(s) && !nan_loss);  // the scale
  if (!found_inf || !finding) {
    ++s.seen;
    s.recent = {s.recent[0] << 1 | uint64_t(found_inf), s.recent[1] << 1 | s.recent[0] >> 63};
  }
  if (!c.enabled || !c.dynamic) return s;
  if (found_inf) {
    if (!nan_loss) s.scale = std::max(float(s.scale * c.backoff_factor), float(c.min_scale));
    s.growth_tracker = 0;
    return s;
  }
  s.probed_from = 0;
  if (++s.growth_tracker >= c.growth_interval) {
    if (s.scale * c.growth_factor <= c.max_scale)
      s.probed_from = std::exchange(s.scale, float(s.scale * c.growth_factor));
    s.growth_tracker = 0;
  }
  return s;
}

/// What makes gradients of that kind at that scale: "scale overflow" goes away at a lower scale,
/// "the model or the data" does not. Where it is not known whether the loss was finite, a NaN
/// counts as the latter.
const char* cause_of(Finite kind, double scale, std::optional<bool> finite_loss = {});

/// What update() has to say.
struct Note {
  enum class Level : uint8_t { none, info, warning } level = Level::none;
  std::string text;
};

class GradScaler {
 public:
  /// @param agree the one point where processes agree, in the same order in each: told what this
  /// one found (a bad gradient; after one, a NaN loss), returns whether any did. step() asks, and
  /// update() does for the optimizers that were unscaled and not stepped, once for all.
  /// @throws Error when a number of the config is out of range.
  explicit GradScaler(const ScalerConfig& config = {}, std::function<bool(bool)> agree = {});

  /// loss * scale in fp32 (f64 for f64), recorded; the gradients that backward() makes from it
  /// carry the scale, and say so. @throws Error inside autograd::checkpoint(), or where the loss
  /// was computed from gradients that still carry a scale.
  Tensor scale(const Tensor& loss);
  /// Divides the optimizer's gradients by the scale, in fp32; needed only where they are looked at
  /// or clipped before step().
  /// @throws Error when they are unscaled or stepped already, or carry another scale.
  void unscale(Stepper& optimizer);
  /// Steps, unless a gradient is not finite: then nothing is changed. Unscales in the same pass
  /// where unscale() was not called. @param clip what gradients are multiplied by after unscaling;
  /// with max_norm they are clipped to that norm instead, and the result tells what it was.
  /// @throws Error when called twice since update(), or as the optimizer's step.
  StepResult step(Stepper& optimizer, double clip = 1, std::optional<double> max_norm = {});
  /// Moves the scale, once for all optimizers; not where a loss was NaN before it was scaled, which
  /// no lower scale mends. Only losses that gave the gradients count, not those that were dropped,
  /// with their gradients or before backward(). Returns what a person should know of it.
  /// @throws Error without a step since the last update; when max_skips steps in a row were skipped
  /// at the floor, or more than stop_share of the last kSkipWindow, naming the cause and the first
  /// bad parameter.
  Note update();

  bool enabled() const { return config_.enabled; }
  double scale() const { return state_.scale; }
  /// True until the first good step, while the scale is being found.
  bool calibrating() const { return state_.seen == 0; }
  /// Skipped steps among the last kSkipWindow, as a share.
  double skip_share() const;

  const ScalerState& state() const { return state_; }
  /// @throws Error between unscale() or step() and update(), or naming the field that this config
  /// cannot hold: a scale outside [min_scale, max_scale], one that is not the fixed one, or not 1
  /// where the scaler is disabled; a negative count.
  void load_state(const ScalerState& state);

 private:
  /// How bad a gradient is, and of which parameter, by name: the optimizer may be gone.
  struct Bad {
    Finite kind = Finite::yes;
    std::string of = {};
  };
  struct Stage {
    const char* unscaled_by = nullptr;
    bool stepped = false;
    Bad bad;                    ///< what unscale() saw
    Finite loss = Finite::yes;  ///< where that was bad: how bad the losses of its gradients are
  };
  struct Losses;
  Finite loss_of(const std::vector<Tensor>& params) const;
  void find_bad(Bad bad, Finite loss);
  void stop_if_hopeless(double scale, std::optional<bool> finite_loss) const;

  ScalerConfig config_;
  std::function<bool(bool)> agree_;
  ScalerState state_;
  std::map<const Stepper*, Stage> stages_;  ///< since the last update
  std::shared_ptr<Losses> losses_;          ///< since then; looked at when a step is skipped
  Finite loss_ = Finite::yes;               ///< the worst of a skipped step
  bool nan_loss_ = false;                   ///< of a skipped step, in any process
  bool found_inf_ = false;                  ///< by any optimizer, since the last update
  Bad bad_;                                 ///< the last one
  bool warned_ = false;
};

}  // namespace minim::amp
