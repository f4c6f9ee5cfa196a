#include "minim/optim/ema.h"

#include <algorithm>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/core/pool.h"
#include "minim/core/warn.h"
#include "minim/ops/functional.h"

namespace minim::optim {
namespace {

void overwrite(const Tensor& param, const Tensor& values) {
  copy_elements(values, param);
  param.bump_version();
}

}  // namespace

Ema::Ema(const Optimizer& optimizer, double decay)
    : optimizer_(optimizer),
      decay_(decay),
      params_(optimizer.parameters()),
      updates_(zeros({}, DType::i64, kHost)) {
  if (!(decay >= 0 && decay < 1)) fail("[Ema] decay must be in [0, 1), not ", decay);
  MemoryScope kind(MemoryKind::masters);
  for (size_t i = 0; i < params_.size(); ++i) {
    Tensor w = weights(i);
    averages_.push_back(empty(w.shape(), promote_types(w.dtype(), DType::f32), w.device()));
    copy_elements(w, averages_.back());
  }
}

/// The most exact there are.
Tensor Ema::weights(size_t i) const {
  Tensor master = optimizer_.master(i);
  return master.defined() ? master : params_[i];
}

void Ema::update() {
  if (std::ranges::any_of(params_, is_averaged))
    fail("[Ema::update] averages stand in for the weights; end the Swap first");
  NoGrad no_recording;
  amp::Autocast exact(amp::Autocast::off);
  double n = double((*updates_.span<int64_t>().data())++);
  double share = 1 - std::min(decay_, (1 + n) / (10 + n));
  for (size_t i = 0; i < params_.size(); ++i)
    copy_elements(lerp(averages_[i], weights(i), share), averages_[i]);
}

std::vector<NamedState> Ema::state() const {
  std::vector<NamedState> all{{"updates", updates_}};
  const std::vector<std::string> keys = keys_of(params_);
  for (size_t i = 0; i < params_.size(); ++i) all.emplace_back(keys[i] + ".ema", averages_[i]);
  return all;
}

std::vector<NamedState> Ema::averages() const {
  std::vector<NamedState> all;
  for (size_t i = 0; i < params_.size(); ++i)
    all.emplace_back(params_[i].name(), averages_[i].to(params_[i].dtype()));
  return all;
}

Ema::Swap::Swap(const Ema& ema) try : params_(ema.params_) {
  for (size_t i = 0; i < params_.size(); ++i)
    if (is_averaged(params_[i]))
      fail("[Ema::swap] averages stand in for ", amp::label(params_[i], i),
           " already, which this would keep for the weights; end that Swap first");
  for (const Tensor& p : params_) {
    weights_.push_back(p.clone());
    autograd_of(p);  // for the mark
  }
  versions_.resize(params_.size());
  for (size_t i = 0; i < params_.size(); ++i) {  // from here on no memory is asked for
    overwrite(params_[i], ema.averages_[i]);
    versions_[i] = params_[i].version();
    autograd_of(params_[i]).averaged = true;
  }
} catch (const std::bad_alloc&) {
  pool::fail_full("Ema::swap");
}

Ema::Swap::~Swap() {
  for (size_t i = 0; i < params_.size(); ++i)
    if (params_[i].version() != versions_[i])
      warn("[Ema] ", amp::label(params_[i], i),
           " was written while its average stood in for it; that is lost, as the weights from "
           "before come back");
  for (size_t i = 0; i < params_.size(); ++i) {
    overwrite(params_[i], weights_[i]);
    autograd_of(params_[i]).averaged = false;
  }
}

}  // namespace minim::optim
