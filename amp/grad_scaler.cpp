#include "minim/amp/grad_scaler.h"

#include <cmath>

#include "minim/autograd/recorder.h"

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

constexpr const char* kOverflow = "scale overflow";

/// How bad the worst of the losses is.
Finite kind_of(const std::vector<Tensor>& losses) {
  Finite worst = Finite::yes;
  for (const Tensor& loss : losses)
    for (double v : loss.to_vector())
      if (!std::isfinite(v)) worst = std::max(worst, std::isnan(v) ? Finite::nan : Finite::inf);
  return worst;
}

}  // namespace

const char* cause_of(Finite kind, double scale, std::optional<bool> finite_loss) {
  bool overflow = scale > 1 && finite_loss.value_or(kind != Finite::nan);
  return overflow ? kOverflow : "the model or the data";
}

GradScaler::GradScaler(const ScalerConfig& config, std::function<bool(bool)> agree)
    : config_(config), agree_(std::move(agree)) {
  if (config.enabled) check(config);
  state_.scale = config.enabled ? float(config.init_scale) : 1;
}

Tensor GradScaler::scale(const Tensor& loss) {
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
  losses_.push_back(loss.detach());
  Tensor factor = full({}, state_.scale, DType::f32, loss.device());
  Tensor scaled = empty(loss.shape(), promote_types(loss.dtype(), DType::f32), loss.device());
  OpArgs args(2, 1);
  args.dtype = scaled.dtype();
  args.device = loss.device();
  args.in[0] = arg_of(loss);
  args.in[1] = arg_of(factor);
  args.out[0] = arg_of(scaled);
  Op::mul.forward[size_t(loss.device().kind)](args);
  if (GradMode::enabled() && loss.requires_grad()) {
    record(Op::mul, args, std::array{loss, factor}, std::array{scaled});
    autograd_of(scaled).node->scale = state_.scale;
  }
  return scaled;
}

void GradScaler::unscale(Stepper& optimizer) {
  if (!config_.enabled) return;
  Stage& stage = stages_[&optimizer];
  if (stage.stepped)
    fail("[GradScaler::unscale] step() came first; unscale before it, or call update() in between");
  if (stage.unscaled_by)
    fail("[GradScaler::unscale] the gradients are unscaled already, by ", stage.unscaled_by,
         " since the last update(); unscale once, after the last backward() of the step");
  std::vector<Tensor> params = optimizer.parameters();
  check_scale(params, state_.scale, "GradScaler::unscale");
  FirstBad bad = multiply(dense_gradients(params), inverse_of(state_.scale));
  if (bad.kind != Finite::yes) stage.bad = {bad.kind, label(params[bad.index], bad.index)};
  for (const Tensor& p : params)
    if (p.grad().defined()) {
      set_carried_scale(p.grad(), 1);
      stage.unscaled_by = "an earlier unscale()";
    }
}

StepResult GradScaler::step(Stepper& optimizer, double clip, std::optional<double> max_norm) {
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
  found_inf_ |= result.found_inf;
  if (result.found_inf) {
    bad_ = {result.kind, result.first_bad};
    const bool nan = kind_of(losses_) == Finite::nan;
    nan_loss_ = agree_ ? agree_(nan) : nan;
  }
  result.scale_before = state_.scale;
  result.scale_after = next(state_, found_inf_, config_, nan_loss_).scale;
  return result;
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

Note GradScaler::update() {
  bool any = false;
  for (auto& [optimizer, stage] : stages_) {
    any |= stage.stepped || stage.unscaled_by;
    if (stage.stepped || stage.bad.kind == Finite::yes) continue;
    found_inf_ = true;
    bad_ = stage.bad;
    nan_loss_ |= kind_of(losses_) == Finite::nan;
  }
  if (!any && !config_.enabled) return {};
  if (!any)
    fail(
        "[GradScaler::update] no step() or unscale() since the last update(): nothing says whether "
        "the gradients are finite");
  bool skipped = std::exchange(found_inf_, false), calibrates = calibrating();
  double before = state_.scale;
  stages_.clear();
  std::vector<Tensor> losses = std::exchange(losses_, {});
  const bool nan_loss = std::exchange(nan_loss_, false);
  state_ = next(state_, skipped, config_, nan_loss);
  std::optional<bool> finite_loss;
  if (nan_loss) finite_loss = false;
  if (skipped && !config_.dynamic && !losses.empty()) finite_loss = kind_of(losses) == Finite::yes;
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
}

void GradScaler::load_state(const ScalerState& state) {
  for (const auto& [optimizer, stage] : stages_)
    if (stage.stepped || stage.unscaled_by)
      fail("[GradScaler::load_state] a step is under way; call update() first");
  if (!is_scale(state.scale))
    fail("[GradScaler::load_state] the scale must be positive and finite, not ", state.scale);
  state_ = state;
  if (!config_.enabled) state_.scale = 1;
}

}  // namespace minim::amp
