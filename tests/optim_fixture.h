// tests/optim_fixture.h -- small parameters with gradients, for the tests of optimizers and of the
// loss scaler.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "minim/amp/grad_scaler.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"

namespace minim::test {

using Values = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline Tensor parameter(const Values& v, DType d = DType::f32, const char* name = "") {
  return tensor(v, {Index(v.size())}, d).set_requires_grad().set_name(name);
}
inline Tensor scalar(double v, const char* name = "w", DType d = DType::f32) {
  return parameter({v}, d, name);
}
inline void set_grad(const Tensor& p, const Values& g) {
  p.set_grad(tensor(g, p.shape(), p.dtype() == DType::f64 ? DType::f64 : DType::f32));
}

inline const std::vector<Values> kGradients{
    {.1, -.2, .3, 0}, {.05, .4, -.6, 1e-4}, {-1, 2, -3, 1e-8}, {.1, -.2, .3, 0}, {10, 0, 1e-3, -5}};

/// What p0 becomes in one step for each of the gradients.
inline Values run(const optim::Rule& rule, const optim::Options& options, DType d,
                  Values p0 = {1, -2, 3, .5}, const std::vector<Values>& gradients = kGradients) {
  Tensor p = parameter(p0, d);
  optim::Optimizer opt(rule, {{{p}}}, options);
  for (const Values& g : gradients) {
    set_grad(p, g);
    CHECK(opt.step().stepped);
  }
  return p.to_vector();
}

inline void check_near(const Values& got, const Values& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i])));
}

std::string error_of(auto&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
inline void says(const std::string& text, const char* part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

inline Tensor state_of(const optim::Optimizer& opt, const std::string& name) {
  for (const auto& [n, t] : opt.state())
    if (n == name) return t;
  return {};
}

/// w * slope: a loss whose gradient is the slope.
inline Tensor product(const Tensor& w, double slope) {
  return (w * tensor({slope}, w.dtype())).reshape({});
}
/// One whole step with that gradient.
inline amp::Note train(amp::GradScaler& scaler, optim::Optimizer& opt, const Tensor& w,
                       double slope) {
  opt.zero_grad();
  scaler.scale(product(w, slope)).backward();
  scaler.step(opt);
  return scaler.update();
}

}  // namespace minim::test
