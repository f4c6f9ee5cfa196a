#include "minim/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "minim/amp/gradients.h"
#include "minim/core/per_isa.h"
#include "minim/core/pool.h"
#include "minim/core/sum.h"
#include "minim/core/wide.h"

namespace minim::optim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_limit(const char* what, double limit) {
  if (!(limit >= 0)) fail("[", what, "] the limit must be at least 0, not ", limit);
}

/// The sum of |x|^p, or for p = infinity the largest |x|.
template <class X>
double power_sum(Index n, double p, X x) {
  if (p == kInfinity) return max16<double>(n, [&](Index i) { return std::fabs(x(i)); });
  if (p == 1) return sum16<double>(n, [&](Index i) { return std::fabs(x(i)); });
  return sum16<double>(n, [&](Index i) { return std::pow(std::fabs(x(i)), p); });
}
template <class A>
struct SumOfSquares {
  static void run(const A* g, Index n, A factor, double* sum) {
    *sum = sum16<double>(n, [=](Index i) {
      const double x = g[i] * factor;
      return x * x;
    });
  }
};

std::vector<Tensor> unscaled_gradients(std::span<const Tensor> params, const char* what) {
  for (size_t i = 0; i < params.size(); ++i) amp::check_leaf(params[i], i, what);
  amp::check_scale(params, 1, what);
  return amp::dense_gradients(amp::each_once(params));
}

/// power_sum over all gradients, each multiplied by `factor` and divided by `unit`.
double total_of(std::span<const Tensor> gradients, double p, double factor, double unit) {
  std::vector<amp::Chunk> chunks = amp::chunks_of(gradients);
  if (chunks.empty()) return 0;
  std::vector<double> parts(chunks.size());
  amp::each_chunk(gradients, chunks, [&]<class A>(size_t k, const A* g, Index n) {
    if (p == 2 && unit == 1)
      per_isa<A, SumOfSquares<A>>(g, n, A(factor), &parts[k]);
    else
      parts[k] = power_sum(n, p, [&](Index i) { return double(g[i] * A(factor)) / unit; });
  });
  auto part = [&](Index k) { return parts[size_t(k)]; };
  const Index n = Index(parts.size());
  return p == kInfinity ? max16<double>(n, part) : sum16<double>(n, part);
}

}  // namespace

double norm_of(std::span<const Tensor> gradients, double p, double factor) {
  const double total = total_of(gradients, p, factor, 1);
  if (p == kInfinity) return total;
  auto root = [p](double sum) {
    return p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p);
  };
  if (suffices<double>(total)) return root(total);
  // The powers have left f64 (of 1e35, p = 10 does): of shares of the largest they do not.
  const double largest = total_of(gradients, kInfinity, factor, 1);
  if (!(largest > 0 && std::isfinite(largest))) return largest;
  return largest * root(total_of(gradients, p, factor, largest));
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
  for (const Tensor& g : unscaled_gradients(params, "clip_grad_value")) {
    if (!g.defined()) continue;
    amp::with_elements(g, [&]<class A>(A* p, Index n) {
      for (Index i = 0; i < n; ++i)
        p[i] = p[i] > A(limit) ? A(limit) : p[i] < A(-limit) ? A(-limit) : p[i];
    });
    g.bump_version();
  }
}

}  // namespace minim::optim
