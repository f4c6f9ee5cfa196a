#include "minim/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "minim/core/random.h"
#include "minim/ops/call.h"

namespace minim::autograd {
namespace {

/// Multiples of 1/32 in [-2, 2): exact in every dtype.
Tensor cotangent(const Tensor& y, uint64_t stream) {
  std::vector<double> g;
  for (Index i = 0; i < y.numel(); ++i)
    g.push_back(std::floor(uniform01(Philox::block(20, 100 + stream, uint64_t(i))[0]) * 128 - 64) /
                32);
  return tensor(g, y.shape(), y.dtype());
}

bool checked(const Tensor& x) { return x.defined() && x.dtype() == DType::f64; }

/// Fresh leaves in place of the f64 inputs.
std::vector<Tensor> leaves_of(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves = inputs;
  for (Tensor& x : leaves)
    if (checked(x)) x = tensor(x.to_vector(), x.shape(), DType::f64).set_requires_grad();
  return leaves;
}

}  // namespace

Slopes numeric_slopes(const TensorFunction& fn, const std::vector<Tensor>& inputs, double eps) {
  NoGrad no_recording;
  const Generator random = generator();
  std::vector<Tensor> at = leaves_of(inputs);
  auto results = [&] {
    generator() = random;
    std::vector<double> all;
    for (const Tensor& y : fn(at))
      if (is_floating(y.dtype()))
        for (double v : y.to_vector()) all.push_back(v);
    return all;
  };
  Slopes slopes(at.size());
  for (size_t k = 0; k < at.size(); ++k) {
    if (!checked(at[k])) continue;
    const Tensor values = at[k].on_host();
    auto put = [&](double& x, double v) {
      x = v;
      if (!(at[k].device() == kHost)) copy_elements(values, at[k]);
    };
    for (double& x : values.span<double>()) {
      const double centre = x, h = eps * std::max(0.25, std::fabs(x));
      const double high = centre + h, low = centre - h, width = high - low;
      put(x, high);
      std::vector<double> above = results();
      put(x, low);
      std::vector<double> below = results();
      put(x, centre);
      for (size_t j = 0; j < above.size(); ++j) above[j] = (above[j] - below[j]) / width;
      slopes[k].push_back(std::move(above));
    }
  }
  generator() = random;
  return slopes;
}

std::vector<std::string> gradcheck(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                                   const GradcheckOptions& options) {
  if (std::none_of(inputs.begin(), inputs.end(), checked))
    fail("[gradcheck] no input is f64: differences in less say nothing; convert with .to()");
  const Generator random = generator();
  std::vector<Tensor> leaves = leaves_of(inputs), results = fn(leaves);
  std::vector<double> cotangents;  // of all floating results
  bool any = false;
  for (size_t o = 0; o < results.size(); ++o) {
    if (!is_floating(results[o].dtype())) continue;
    bool reached = results[o].requires_grad();
    Tensor g = cotangent(results[o], o);
    for (double v : g.to_vector()) cotangents.push_back(reached ? v : 0);
    if (reached) results[o].backward(g, true);
    any |= reached;
  }
  if (!any) fail("[gradcheck] no result requires gradients: the function does not use its inputs");
  generator() = random;
  const Slopes slopes = numeric_slopes(fn, inputs, options.eps);
  std::vector<std::string> findings;
  for (size_t k = 0; k < leaves.size(); ++k) {
    if (!checked(leaves[k])) continue;
    Tensor g = leaves[k].grad();
    std::vector<double> analytic =
        g.defined() ? g.to_vector() : std::vector<double>(slopes[k].size());
    for (size_t i = 0; i < analytic.size(); ++i) {
      double numeric = 0, a = analytic[i];
      for (size_t j = 0; j < cotangents.size(); ++j) numeric += cotangents[j] * slopes[k][i][j];
      if (a == numeric || (std::isnan(a) && std::isnan(numeric)) ||
          std::fabs(a - numeric) <= options.atol + options.rtol * std::fabs(numeric))
        continue;
      std::ostringstream text;
      text << "d input " << k << "[" << i << "] of shape " << to_string(leaves[k].shape())
           << ": backward says " << a << ", finite differences " << numeric << " (ratio "
           << a / numeric << ")";
      findings.push_back(text.str());
    }
  }
  return findings;
}

std::vector<std::string> gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                                   const std::vector<Tensor>& inputs,
                                   const GradcheckOptions& options) {
  TensorFunction many = [&](const std::vector<Tensor>& x) { return std::vector{fn(x)}; };
  return gradcheck(many, inputs, options);
}

}  // namespace minim::autograd
