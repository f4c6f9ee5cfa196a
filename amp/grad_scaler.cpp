#include "minim/amp/grad_scaler.h"

#include <cmath>
#include <limits>

#include "minim/autograd/recorder.h"
#include "minim/core/pool.h"

namespace minim::amp {
namespace {

void check(const ScalerConfig& c) {
  auto positive = [](const char* what, double v) {
    if (!is_scale(v))
      fail("[GradScaler] ", what, " must be positive and fit f32, as its reciprocal does, not ", v);
  };
  positive("init_scale", c.init_scale);
  positive("min_scale", c.min_scale);
  positive("max_scale", c.max_scale);
  if (c.dynamic && (c.init_scale < c.min_scale || c.init_scale > c.max_scale))
    fail("[GradScaler] init_scale ", c.init_scale, " is outside [min_scale, max_scale] = [",
         c.min_scale, ", ", c.max_scale, "]");
  if (!(c.growth_factor > 1))
    fail("[GradScaler] growth_factor must be over 1, not ", c.growth_factor);
  if (!(c.backoff_factor > 0 && c.backoff_factor < 1))
    fail("[GradScaler] backoff_factor must be in (0, 1), not ", c.backoff_factor);
  if (c.growth_interval < 1 || c.max_skips < 1)
    fail("[GradScaler] growth_interval ", c.growth_interval, " and max_skips ", c.max_skips,
         " must be at least 1");
}

/// @throws Error naming the field of a saved state that a scaler of that config cannot hold.
void check_held(const ScalerState& s, const ScalerConfig& c) {
  constexpr const char* kWho = "[GradScaler::load_state] ";
  const float scale = float(s.scale);
  if (!is_scale(s.scale)) fail(kWho, "the scale must be positive and finite, not ", s.scale);
  if (!c.enabled && scale != 1)
    fail(kWho, "scale ", s.scale,
         " does not fit a scaler that is disabled: its scale is 1; enable it, as it was when the "
         "state was saved, or set the state's scale to 1");
  if (c.enabled && !c.dynamic && scale != float(c.init_scale))
    fail(kWho, "scale ", s.scale, " does not fit a scaler whose scale is fixed at ", c.init_scale,
         ": make it dynamic or init_scale the same, as when the state was saved, or set the "
         "state's scale to the fixed one");
  if (c.enabled && c.dynamic && (scale < float(c.min_scale) || scale > float(c.max_scale)))
    fail(kWho, "scale ", s.scale, " is outside [min_scale, max_scale] = [", c.min_scale, ", ",
         c.max_scale, "] of this scaler");
  for (auto [name, count] :
       {std::pair("growth_tracker", s.growth_tracker),
        std::pair("skips_at_floor", s.skips_at_floor), std::pair("seen", s.seen)})
    if (count < 0) fail(kWho, name, " is ", count, "; it counts from 0");
  if (!(s.probed_from >= 0 && s.probed_from <= std::numeric_limits<float>::max()))
    fail(kWho, "probed_from is ", s.probed_from, "; it is a scale, or 0");
}

constexpr const char* kOverflow = "scale overflow";

}  // namespace

/// The losses that backward() went out from, each with its number. They are read when that is asked
/// for, or when there are many.
struct GradScaler::Losses {
  void add(const Tensor& loss) {
    constexpr size_t kMost = 64;
    unread.emplace_back(loss, live_backward());
    if (unread.size() == kMost) read();
  }
  void read() {
    any |= !unread.empty();
    for (const auto& [loss, number] : std::exchange(unread, {}))
      for (double v : loss.to_vector())
        if (!std::isfinite(v)) (std::isnan(v) ? last_nan : last_inf) = number;
  }
  /// How bad the worst is, of those from backward() number `first` on.
  Finite worst(uint64_t first) {
    read();
    if (last_nan > 0 && last_nan >= first) return Finite::nan;
    return last_inf > 0 && last_inf >= first ? Finite::inf : Finite::yes;
  }
  std::vector<std::pair<Tensor, uint64_t>> unread;
  uint64_t last_inf = 0, last_nan = 0;
  bool any = false;
};

const char* cause_of(Finite kind, double scale, std::optional<bool> finite_loss) {
  bool overflow = scale > 1 && finite_loss.value_or(kind != Finite::nan);
  return overflow ? kOverflow : "the model or the data";
}

GradScaler::GradScaler(const ScalerConfig& config, std::function<bool(bool)> agree)
    : config_(config), agree_(std::move(agree)), losses_(std::make_shared<Losses>()) {
  if (config.enabled) check(config);
  state_.scale = config.enabled ? float(config.init_scale) : 1;
}

Tensor GradScaler::scale(const Tensor& loss) try {
  if (!config_.enabled) return loss;
  if (!is_floating(loss.dtype()))
    fail("[GradScaler::scale] a loss is a floating tensor, not ", name_of(loss.dtype()));
  if (Recorder::current())
    fail(
        "[GradScaler::scale] inside checkpoint(), which calls its function twice; scale its "
        "result");
  if (carried_scale(loss) != 1)
    fail(
        "[GradScaler::scale] the loss was computed from gradients that still carry a loss scale; "
        "call unscale(optimizer) before they are used");
  Tensor factor = full({}, state_.scale, DType::f32, loss.device());
  Tensor scaled = empty(loss.shape(), promote_types(loss.dtype(), DType::f32), loss.device());
  OpArgs args(2, 1);
  args.dtype = scaled.dtype();
  args.in[0] = arg_of(loss);
  args.in[1] = arg_of(factor);
  args.out[0] = arg_of(scaled);
  run_forward(Op::mul, args);
  if (GradMode::enabled() && loss.requires_grad()) {
    record(Op::mul, args, std::array{loss, factor}, std::array{scaled});
    autograd_of(scaled).node->scale = state_.scale;
    scaled.register_hook([to = std::weak_ptr(losses_), unscaled = loss.detach()](const Tensor&) {
      if (auto losses = to.lock()) losses->add(unscaled);
      return Tensor();
    });
  } else {
    set_carried_scale(scaled, state_.scale);
  }
  return scaled;
} catch (const std::bad_alloc&) {
  pool::fail_full("GradScaler::scale");
}

/// How bad the worst of the losses is that the parameters' gradients came from.
Finite GradScaler::loss_of(const std::vector<Tensor>& params) const {
  uint64_t first = std::numeric_limits<uint64_t>::max();
  for (const Tensor& p : params)
    if (p.grad().defined()) first = std::min(first, autograd_of(p).since);
  return losses_->worst(first);
}

/// A step is to be skipped, here and in every process.
void GradScaler::find_bad(Bad bad, Finite loss) {
  found_inf_ = true;
  bad_ = std::move(bad);
  loss_ = std::max(loss_, loss);
  const bool nan = loss == Finite::nan, any = agree_ ? agree_(nan) : nan;
  nan_loss_ |= any;
}

void GradScaler::unscale(Stepper& optimizer) try {
  if (!config_.enabled) return;
  Stage& stage = stages_[&optimizer];
  if (stage.stepped)
    fail("[GradScaler::unscale] step() came first; unscale before it, or call update() in between");
  if (stage.unscaled_by)
    fail("[GradScaler::unscale] the gradients are unscaled already, by ", stage.unscaled_by,
         " since the last update(); unscale once, after the last backward() of the step");
  std::vector<Tensor> params = each_once(optimizer.parameters());
  check_scale(params, state_.scale, "GradScaler::unscale");
  FirstBad bad = multiply(dense_gradients(params), inverse_of(state_.scale));
  if (bad.kind != Finite::yes) {
    stage.bad = {bad.kind, label(params[bad.index], bad.index)};
    stage.loss = loss_of(params);
  }
  for (const Tensor& p : params)
    if (p.grad().defined()) {
      set_carried_scale(p.grad(), 1);
      stage.unscaled_by = "an earlier unscale()";
    }
} catch (const std::bad_alloc&) {
  pool::fail_full("GradScaler::unscale");
}

StepResult GradScaler::step(Stepper& optimizer, double clip, std::optional<double> max_norm) try {
  if (!(clip >= 0 && clip < std::numeric_limits<double>::infinity()))
    fail("[GradScaler::step] clip is what gradients are multiplied by, in [0, inf), not ", clip);
  Stage& stage = stages_[&optimizer];
  if (config_.enabled && stage.stepped)
    fail("[GradScaler::step] step() came first; one step of each optimizer between two update()s");
  StepRequest request{
      .scale = stage.unscaled_by ? 1 : state_.scale, .clip = clip, .max_norm = max_norm};
  request.agree = [&](bool found) {
    found |= stage.bad.kind != Finite::yes;
    return agree_ ? agree_(found) : found;
  };
  StepResult result = optimizer.step(request);
  if (stage.bad.kind != Finite::yes)  // seen before clipping
    result.kind = stage.bad.kind, result.first_bad = stage.bad.of;
  stage.stepped = true;
  if (result.found_inf)
    find_bad({result.kind, result.first_bad},
             stage.bad.kind != Finite::yes ? stage.loss : loss_of(optimizer.parameters()));
  result.scale_before = state_.scale;
  result.scale_after = next(state_, found_inf_, config_, nan_loss_).scale;
  return result;
} catch (const std::bad_alloc&) {
  pool::fail_full("GradScaler::step");
}

double GradScaler::skip_share() const {
  return state_.seen == 0
             ? 0
             : double(recent_skips(state_)) / double(std::min<int64_t>(state_.seen, kSkipWindow));
}

void GradScaler::stop_if_hopeless(double scale, std::optional<bool> finite_loss) const {
  const char* cause = cause_of(bad_.kind, scale, finite_loss);
  const char* help = cause != kOverflow ? "look at the weights, the inputs and the learning rate"
                     : config_.dynamic  ? "allow a lower scale"
                                        : "choose a lower fixed scale, or a dynamic one";
  std::string what = bad_.of.empty()
                         ? "a gradient of another process"
                         : std::string(name_of(bad_.kind)) + " in the gradient of " + bad_.of;
  if (state_.skips_at_floor >= config_.max_skips)
    fail("[GradScaler::update] ", state_.skips_at_floor,
         " steps in a row were skipped at loss scale ", scale,
         finite_loss.value_or(true) ? ", the lowest"
                                    : ", with a loss that is not finite before it is scaled",
         "; the cause is ", cause, ": ", what, "; ", help);
  if (state_.seen >= kSkipWindow && recent_skips(state_) > config_.stop_share * kSkipWindow)
    fail("[GradScaler::update] ", recent_skips(state_), " of the last ", kSkipWindow,
         " steps were skipped; the last had ", what, " at loss scale ", scale,
         ": some batches always overflow");
}

Note GradScaler::update() try {
  bool any = false, undecided = false;
  Stage worst;  // of those that were unscaled alone
  for (auto& [optimizer, stage] : stages_) {
    any |= stage.stepped || stage.unscaled_by;
    if (stage.stepped || !stage.unscaled_by) continue;
    undecided = true;
    if (stage.bad.kind == Finite::yes) continue;
    worst.bad = stage.bad;
    worst.loss = std::max(worst.loss, stage.loss);
  }
  if (!any && !config_.enabled) return {};
  if (!any)
    fail(
        "[GradScaler::update] no step() or unscale() since the last update(): nothing says whether "
        "the gradients are finite");
  if (const bool mine = worst.bad.kind != Finite::yes; undecided && (agree_ ? agree_(mine) : mine))
    find_bad(worst.bad, worst.loss);
  bool skipped = std::exchange(found_inf_, false), calibrates = calibrating();
  double before = state_.scale;
  stages_.clear();
  losses_->read();
  const bool losses_known = std::exchange(losses_, std::make_shared<Losses>())->any;
  const Finite loss = std::exchange(loss_, Finite::yes);
  const bool nan_loss = std::exchange(nan_loss_, false);
  state_ = next(state_, skipped, config_, nan_loss);
  std::optional<bool> finite_loss;
  if (nan_loss) finite_loss = false;
  if (skipped && !config_.dynamic && losses_known) finite_loss = loss == Finite::yes;
  stop_if_hopeless(before, finite_loss);
  bool too_many = recent_skips(state_) > config_.warn_share * kSkipWindow;
  if (!too_many) warned_ = false;
  if (too_many && !std::exchange(warned_, too_many))
    return {Note::Level::warning, std::to_string(recent_skips(state_)) + " of the last " +
                                      std::to_string(kSkipWindow) +
                                      " steps were skipped, the last by " + bad_.of};
  if (skipped && calibrates && config_.enabled) {
    std::ostringstream text;
    if (config_.dynamic && !nan_loss)
      text << "calibration: " << name_of(bad_.kind) << " at loss scale " << before << ", next "
           << state_.scale << (bad_.kind == Finite::inf ? ": scale overflow, harmless" : "");
    else
      text << "skipped: " << name_of(bad_.kind) << " at loss scale " << before << ", by "
           << cause_of(bad_.kind, before, finite_loss);
    return {Note::Level::info, text.str()};
  }
  return {};
} catch (const std::bad_alloc&) {
  pool::fail_full("GradScaler::update");
}

void GradScaler::load_state(const ScalerState& state) {
  for (const auto& [optimizer, stage] : stages_)
    if (stage.stepped || stage.unscaled_by)
      fail("[GradScaler::load_state] a step is under way; call update() first");
  check_held(state, config_);
  state_ = state;
  state_.scale = float(state.scale);
}

}  // namespace minim::amp
