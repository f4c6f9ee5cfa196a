#include "minim/optim/gradient_statistics.h"

#include <cmath>

#include "minim/amp/gradients.h"
#include "minim/core/parallel.h"
#include "minim/core/sum.h"
#include "minim/optim/optimizer.h"

namespace minim::optim {
namespace {

template <class A>
GradientStatistics statistics_of(std::string name, const A* g, Index n) {
  auto size = [&](Index i) { return std::isfinite(g[i]) ? std::fabs(double(g[i])) : 0.0; };
  auto count = [&](auto&& is_it) {
    return sum16<double>(n, [&](Index i) { return double(is_it(g[i])); });
  };
  return {std::move(name), std::sqrt(sum16<double>(n, [&](Index i) { return size(i) * size(i); })),
          max16<double>(n, size), count([](A v) { return v != 0; }) / double(n),
          int64_t(count([](A v) { return !std::isfinite(v); }))};
}

}  // namespace

std::vector<GradientStatistics> gradient_statistics(std::span<const Tensor> given) {
  const std::vector<Tensor> params = amp::each_once(given);
  for (size_t i = 0; i < params.size(); ++i) amp::check_leaf(params[i], i, "gradient_statistics");
  amp::check_scale(params, 1, "gradient_statistics");
  std::vector<Tensor> gradients = amp::dense_gradients(params);
  const std::vector<std::string> keys = keys_of(params);
  std::vector<GradientStatistics> all(params.size());
  parallel_for(Index(params.size()), 1, [&](Index begin, Index end) {
    for (size_t i = size_t(begin); i < size_t(end); ++i) {
      if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
      const Tensor g = gradients[i].on_host();
      g.dtype() == DType::f64 ? all[i] = statistics_of(keys[i], g.span<double>().data(), g.numel())
                              : all[i] = statistics_of(keys[i], g.span<float>().data(), g.numel());
    }
  });
  std::erase_if(all, [](const GradientStatistics& s) { return s.name.empty(); });
  return all;
}

}  // namespace minim::optim
