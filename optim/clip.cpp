#include "minim/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/amp/gradients.h"
#include "minim/autograd/node.h"
#include "minim/core/backend.h"
#include "minim/core/pool.h"
#include "minim/core/wide.h"
#include "minim/ops/functional.h"

namespace minim::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_limit(const char* what, double limit) {
  if (!(limit >= 0)) fail("[", what, "] the limit must be at least 0, not ", limit);
}

std::vector<Tensor> unscaled_gradients(std::span<const Tensor> params, const char* what) {
  for (size_t i = 0; i < params.size(); ++i) amp::check_leaf(params[i], i, what);
  amp::check_scale(params, 1, what);
  return amp::dense_gradients(amp::each_once(params));
}

}  // namespace

double norm_of(std::span<const Tensor> gradients, double p, double factor) {
  const amp::FlatList list = amp::flat_list(gradients, "grad_norm");
  auto total_of = [&](double p, double unit) {
    return backend(list.device).power_sum(list.all, p, factor, unit);
  };
  const double total = total_of(p, 1);
  if (p == kInfinity) return total;
  auto root = [p](double sum) {
    return p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p);
  };
  if (suffices<double>(total)) return root(total);
  // The powers have left f64 (of 1e35, p = 10 does): of shares of the largest they do not.
  const double largest = total_of(kInfinity, 1);
  if (!(largest > 0 && std::isfinite(largest))) return largest;
  return largest * root(total_of(p, largest));
}

double grad_norm(std::span<const Tensor> params, double p) {
  if (!(p > 0)) fail("[grad_norm] p must be positive, not ", p);
  return norm_of(unscaled_gradients(params, "grad_norm"), p);
}

double clip_coefficient(double norm, double max_norm) {
  check_limit("max_norm", max_norm);
  return std::isfinite(norm) ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
}

double clip_grad_norm(std::span<const Tensor> params, double max_norm, double p) try {
  check_limit("clip_grad_norm", max_norm);
  double norm = grad_norm(params, p), coefficient = clip_coefficient(norm, max_norm);
  if (coefficient < 1) amp::multiply(amp::dense_gradients(amp::each_once(params)), coefficient);
  return norm;
} catch (const std::bad_alloc&) {
  pool::fail_full("clip_grad_norm");
}

void clip_grad_value(std::span<const Tensor> params, double limit) {
  check_limit("clip_grad_value", limit);
  NoGrad no_recording;
  amp::Autocast exact(amp::Autocast::off);
  for (const Tensor& g : unscaled_gradients(params, "clip_grad_value")) {
    if (!g.defined()) continue;
    const double most = g.dtype() == DType::f64 ? limit : double(float(limit));
    copy_elements(clamp(g, {-most, most}), g);
    g.bump_version();
  }
}

}  // namespace minim::optim
