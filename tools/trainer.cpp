#include "minim/tools/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/anomaly.h"
#include "minim/models/toy_language.h"
#include "minim/ops/functional.h"
#include "minim/optim/clip.h"
#include "minim/optim/schedule.h"
#include "minim/tools/signals.h"
#include "minim/tools/sizes.h"

namespace minim {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSpans = 1'000'000;            // of a trace: about 100 MB of JSON
constexpr uint64_t kStreamsPerMicroStep = 1 << 16;  // more than a model has dropouts

models::Dataset load_data(const TrainConfig::Input& in, int64_t seed) {
  if (in.is_toy()) check_bytes(8 * double(in.toy_tokens), "the tokens of --toy-tokens");
  if (in.is_toy()) return models::toy_language(uint64_t(seed), in.toy_tokens, in.val_fraction);
  return models::load_files(
      {.train = in.data,
       .val = in.val_data == "none" ? "" : in.val_data,
       .val_fraction = in.val_fraction,
       .tokenizer = in.tokenizer,
       .vocab = in.vocab > 0 ? std::optional<int64_t>(in.vocab) : std::nullopt});
}

std::unique_ptr<models::Decoder> build_model(const TrainConfig& c, int64_t vocab) {
  generator() = {uint64_t(c.train.seed), 0};
  const TrainConfig::Model& m = c.model;
  const models::DecoderConfig sizes{
      .vocab = vocab,
      .block = m.block,
      .layers = m.layers,
      .heads = m.heads,
      .embd = m.embd,
      .dropout = m.dropout,
      .bias = m.bias,
      .tied = m.tied,
      .family = models::family_named(m.model),
      .kv_heads = m.kv_heads,
      .attention = m.attention == "fused" ? AttentionKernel::fused : AttentionKernel::reference,
      .checkpoint_activations = c.run.checkpoint_activations};
  check_training_size(sizes, double(c.train.batch));
  return models::make_decoder(sizes);
}

/// Decay on matrices and embeddings only: norms and biases have no scale to shrink towards. Muon
/// takes the matrices of the blocks, AdamW what it leaves.
std::vector<optim::ParamGroup> groups_of(const models::Decoder& model, const optim::Rule& rule,
                                         double weight_decay) {
  bool muon = rule.kind == optim::Kind::muon;
  const optim::Rule* rest = muon ? &optim::kAdamW : &rule;
  optim::ParamGroup hidden{{}, {}, weight_decay, &rule}, decayed{{}, {}, weight_decay, rest},
      plain{{}, {}, 0.0, rest};
  for (const Tensor& p : model.parameters()) {
    bool is_hidden = muon && p.rank() == 2 && p.name().starts_with("blocks.");
    (is_hidden ? hidden : p.rank() >= 2 ? decayed : plain).params.push_back(p);
  }
  std::vector<optim::ParamGroup> groups{hidden, decayed, plain};
  std::erase_if(groups, [](const auto& g) { return g.params.empty(); });
  return groups;
}

/// Turns the model's parameters into the precision's dtype; masters keep what that rounds away.
std::unique_ptr<optim::Optimizer> build_optimizer(const TrainConfig& c, models::Decoder& model,
                                                  const amp::Precision& precision) {
  models::NamedTensors exact = model.named_parameters();
  if (precision.params != DType::f32) model.to(precision.params);
  optim::Options options{.lr = c.train.lr,
                         .amsgrad = c.train.amsgrad,
                         .nesterov = c.train.nesterov,
                         .weight_decay = c.train.weight_decay};
  const optim::Rule& rule = optim::rule_named(c.train.optimizer);
  options.match_adamw_rms = rule.kind == optim::Kind::muon;
  if (rule.kind == optim::Kind::sgd) {
    options.momentum = c.train.beta1;
  } else {
    options.betas = {c.train.beta1, c.train.beta2};
    options.eps = c.train.eps;
  }
  options.masters = precision.masters;
  options.stochastic_rounding = precision.stochastic;
  options.seed = uint64_t(c.train.seed);
  auto optimizer = std::make_unique<optim::Optimizer>(
      rule, groups_of(model, rule, c.train.weight_decay), options);
  std::vector<Tensor> params = optimizer->parameters();
  for (size_t i = 0; precision.masters && i < params.size(); ++i)
    for (const auto& [name, values] : exact)
      if (name == params[i].name()) optimizer->set_master(i, values.detach());
  return optimizer;
}

/// Of all tokens, FNV-1a (as in models/manifest.cpp) over whole ids, in hex.
std::string fingerprint(const models::Dataset& data) {
  uint64_t hash = 0xcbf29ce484222325u;
  std::vector<int32_t> ids;
  for (const auto* part : {&data.train, &data.val})
    for (size_t at = 0; at < part->size(); at += ids.size()) {
      ids.resize(std::min<size_t>(part->size() - at, 1 << 20));
      part->read(at, std::span<int32_t>(ids));
      for (const int32_t token : ids) hash = (hash ^ uint32_t(token)) * 0x100000001b3u;
    }
  return fmt::format("{:016x}", hash);
}

double largest_magnitude(const Tensor& x) {
  NoGrad no_recording;
  return std::max(max(x.detach()).item(), -min(x.detach()).item());
}

}  // namespace

Trainer::Trainer(const TrainConfig& config)
    : config_(config),
      data_(load_data(config.input, config.train.seed)),
      data_hash_(fingerprint(data_)),
      precision_(
          amp::resolve_precision(config.amp.precision, config.amp.loss_scale, config.amp.policy)),
      scaler_(precision_.scaler_config) {
  models::check_length(int64_t(data_.train.size()), config.model.block,
                       "the training split of " + data_.source);
  models::check_length(int64_t(data_.val.size()), 1, "the validation data of " + data_.source);
  if (config.input.is_toy()) floor_ = models::floor_nll(data_.val.to_vector(), config.model.block);
  model_ = build_model(config, data_.vocab);
  optimizer_ = build_optimizer(config, *model_, precision_);
  if (config.run.is_profiled())
    profile_ = std::make_unique<Profile>(config.run.profile_trace == "none" ? 0 : kMostSpans);
  if (config.train.ema > 0) ema_.emplace(*optimizer_, config.train.ema);
  schedule_ = schedule_of(config.train);
}

optim::Schedule schedule_of(const TrainConfig::Train& train) {
  return {.lr = train.lr,
          .min_lr = train.min_lr,
          .warmup = train.warmup,
          .steps = train.steps,
          .decay = optim::decay_named(train.schedule),
          .decay_share = train.decay_share};
}

std::vector<int64_t> Trainer::starts_of(int64_t micro) const {
  const auto& t = config_.train;
  const int64_t n = int64_t(data_.train.size()), block = config_.model.block;
  return config_.input.shuffle == "epoch"
             ? models::epoch_starts(uint64_t(t.seed), sequences_ + micro * t.batch, t.batch, n,
                                    block)
             : models::batch_starts(uint64_t(t.seed), step_, micro, t.batch, n, block);
}

std::string Trainer::first_bad_op() try {
  config_.run.anomaly = true;
  optimizer_->zero_grad();
  double logit = 0;
  for (int64_t micro = 0; micro < config_.train.accum; ++micro) micro_step(micro, logit);
  return "";
} catch (const Error& found) {
  return found.what();
}

double Trainer::micro_step(int64_t micro, double& max_logit) {
  const auto& t = config_.train;
  uint64_t number = uint64_t(micro_batches_ + micro);
  generator() = {uint64_t(t.seed), (number + 1) * kStreamsPerMicroStep};
  models::Batch batch;
  {
    Timed timed("batch", Phase::data);
    batch = models::make_batch(data_.train, starts_of(micro), config_.model.block);
  }
  Tensor logits, loss;
  using autograd::Anomaly;
  auto watch = [&] {
    return config_.run.anomaly ? std::optional<Anomaly>(std::in_place, step_ + 1) : std::nullopt;
  };
  {
    Timed timed("forward pass", Phase::overhead);
    auto anomaly = watch();
    amp::Autocast casts(precision_.autocast ? precision_.compute : DType::f32, precision_.policy);
    logits = (*model_)(batch.inputs);
    loss = cross_entropy(logits, batch.targets);
  }
  double largest = largest_magnitude(logits);
  logits = {};  // backward frees them with the loss's node
  if (!std::isnan(max_logit) && !(largest <= max_logit)) max_logit = largest;  // NaN stays
  Tensor share = t.accum == 1
                     ? loss
                     : loss / double(t.accum);  // every micro-batch has the same number of tokens
  bool counted = is_half(precision_.compute) && step_ % config_.run.log_every == 0;
  ProbeScope probes(counted ? &underflow_ : nullptr);
  auto anomaly = watch();  // passes on to the probe that is there
  scaler_.scale(share).backward();
  return loss.item();
}

std::optional<StepReport> Trainer::step() {
  const auto& t = config_.train;
  ProfileScope profiled(profile_.get());
  Timed timed("step", Phase::overhead);
  const auto counts = std::pair(underflow_.nonzero(), underflow_.lost());
  StepReport report;
  double worst = -INFINITY;
  int64_t worst_micro = 0;
  optimizer_->zero_grad();
  for (int64_t micro = 0; micro < t.accum; ++micro) {
    if (stop_requested()) {
      underflow_.set(counts.first, counts.second);
      return std::nullopt;
    }
    const double loss = [&] {
      try {
        return micro_step(micro, report.max_logit);
      } catch (...) {
        underflow_.set(counts.first, counts.second);  // what is saved then has not begun the step
        throw;
      }
    }();
    if (!(loss <= worst)) worst = loss, worst_micro = micro;
    report.loss += loss / double(t.accum);
  }
  report.lr = schedule_.at(optimizer_->applied_steps());
  optimizer_->set_lr(report.lr);
  optim::StepResult result;
  {
    Timed timed("update", Phase::optimizer);
    if (config_.run.grad_stats) scaler_.unscale(*optimizer_);  // they are told unscaled
    result = scaler_.step(*optimizer_, 1, t.clip > 0 ? t.clip : INFINITY);
  }
  report.grad_norm = result.norm;
  report.clipped_norm =
      result.norm * (t.clip > 0 ? optim::clip_coefficient(result.norm, t.clip) : 1);
  try {
    report.note = scaler_.update().text;
  } catch (const Error& hopeless) {
    const std::string op = first_bad_op();
    fail(hopeless.what(), op.empty() ? "" : "\nthe first bad op of the step: ", op);
  }
  if (watch_.flags(report.loss))
    report.note += fmt::format(
        "{}step {}: the loss is {}, recently {}; it is highest where sequences begin at tokens {}",
        report.note.empty() ? "" : "; ", step_ + 1, number(report.loss, ".4g"),
        number(watch_.recent(), ".4g"), fmt::join(starts_of(worst_micro), " "));
  ++step_;
  micro_batches_ += t.accum;
  if (config_.input.shuffle == "epoch") sequences_ += t.accum * t.batch;
  loss_ = report.loss;
  if (!result.stepped)
    ++skipped_;
  else if (ema_) {
    Timed timed("average", Phase::optimizer);
    ema_->update();
  }
  report.step = step_;
  report.skipped = skipped_;
  report.scale = result.scale_before;
  report.skip_share = scaler_.skip_share();
  report.has_floor = floor_.has_value();
  if (floor_) report.above_floor = report.loss - *floor_;
  return report;
}

models::Evaluation Trainer::evaluate() {
  std::optional<optim::Ema::Swap> averaged;
  if (ema_) averaged.emplace(*ema_);
  return models::evaluate(*model_, data_.val, config_.model.block, 4 * config_.train.batch,
                          precision_);
}

}  // namespace minim
