// What 16-bit results that policy `lean` keeps cost their gradients, on long rows.
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "minim/amp/autocast.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

using Function = std::function<Tensor(const Tensor&)>;

/// |a - b| over |b|, of all elements.
double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) error += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(error / size);
}

/// The gradient by x of loss(f(x)), x of dtype d and held in f32. The loss is scaled, as in f16
/// training: 16-bit gradients would vanish in f16.
std::vector<double> gradient(const Tensor& values, DType d, const Function& f, const Function& loss,
                             double scale) {
  Tensor x = values.detach().clone().set_requires_grad();
  Tensor y;
  if (d == DType::f32) {
    y = f(x);
  } else {
    amp::Autocast region(d, amp::Policy::lean);
    y = f(x.to(d));
  }
  (loss(y.to(DType::f32)) * scale).backward();
  return (x.grad() / scale).to_vector();
}

/// Every row whose cast under `lean` is another than under `torch`, of x (16, 32000).
const std::map<std::string, Function> kLean{
    {"softplus", [](const Tensor& x) { return softplus(x); }},
    {"sum", [](const Tensor& x) { return sum(x, {.axes = {1}}); }},
    {"cumsum", [](const Tensor& x) { return cumsum(x, {.dim = 1}); }},
    {"normalize", [](const Tensor& x) { return normalize(x); }},
    {"cosine_similarity",
     [](const Tensor& x) { return cosine_similarity(x.slice(0, 0, 8), x.slice(0, 8, 16)); }},
    {"softmax", [](const Tensor& x) { return softmax(x); }},
    {"layer_norm", [](const Tensor& x) { return layer_norm(x); }},
    {"rms_norm", [](const Tensor& x) { return rms_norm(x); }},
    {"group_norm", [](const Tensor& x) { return group_norm(x, {}, {}, {.num_groups = 4}); }}};

}  // namespace

TEST_CASE("what lean keeps in 16 bits costs a gradient at most two units of them, over 32,000") {
  for (const OpRow* row : all_ops()) {
    if (row->lean == row->cast) continue;
    CAPTURE(std::string(row->name));
    REQUIRE(kLean.count(row->name) == 1);  // a new one is measured before it is kept
    for (DType d : {DType::bf16, DType::f16}) {
      CAPTURE(std::string(name_of(d)));
      const Tensor x = noise({16, 32000}).to(d).to(DType::f32) * 4.0;
      const Function& f = kLean.at(row->name);
      auto loss = [](const Tensor& y) { return sum(y * noise(y.shape(), DType::f32, 7)); };
      CHECK(relative_error(gradient(x, d, f, loss, 64), gradient(x, DType::f32, f, loss, 64)) <=
            2 * std::ldexp(1.0, -info(d).digits));
    }
  }
}

TEST_CASE("kl_div under lean has the gradient of fp32, also where both distributions are near") {
  const Tensor logits = noise({4, 32000}), moved = noise({4, 32000}, DType::f32, 5);
  for (DType d : {DType::bf16, DType::f16}) {
    CAPTURE(std::string(name_of(d)));
    const Tensor x = logits.to(d).to(DType::f32), target = softmax(x + moved * 0.02);
    auto loss = [&](const Tensor& y) {
      amp::Autocast region(d, amp::Policy::lean);
      return kl_div(y, target, {.reduction = Reduction::batchmean});
    };
    auto f = [](const Tensor& v) { return log_softmax(v); };
    CHECK(relative_error(gradient(x, d, f, loss, 65536), gradient(x, DType::f32, f, loss, 65536)) <=
          2 * std::ldexp(1.0, -info(d).digits));
  }
}

TEST_CASE("log_softmax of 100,000 equal logits has the gradient 0, in 16 bits too") {
  for (DType d : {DType::f16, DType::bf16, DType::f32}) {
    CAPTURE(std::string(name_of(d)));
    Tensor x = zeros({1, 100000}, d).set_requires_grad();
    log_softmax(x).backward(ones({1, 100000}, d));
    for (double v : gradient_of(x)) REQUIRE(std::fabs(v) <= 1e-6);
    // and of any: g - p * sum(g) with the p of fp32, rounded once
    Tensor some = noise({3, 1000}, d).set_requires_grad(), g = noise({3, 1000}, d, 3);
    log_softmax(some).backward(g);
    Tensor wide = some.detach().to(DType::f64).set_requires_grad();
    log_softmax(wide).backward(g.to(DType::f64));
    const std::vector<double> got = gradient_of(some), want = gradient_of(wide);
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(std::fabs(got[i] - want[i]) <=
              std::ldexp(std::fabs(want[i]), -info(d).digits) + 1e-5);
  }
}

TEST_CASE("softmax's backward reads its rounded result: two units of it per probability") {
  for (DType d : {DType::f16, DType::bf16}) {
    CAPTURE(std::string(name_of(d)));
    Tensor x = (noise({3, 1000}) * 4.0).to(d).set_requires_grad(), g = noise({3, 1000}, d, 3);
    softmax(x).backward(g);
    Tensor wide = x.detach().to(DType::f64).set_requires_grad();
    const Tensor p = softmax(wide);
    p.backward(g.to(DType::f64));
    const std::vector<double> got = gradient_of(x), want = gradient_of(wide), y = p.to_vector();
    for (size_t i = 0; i < got.size(); ++i)  // |g| <= 1
      REQUIRE(std::fabs(got[i] - want[i]) <=
              4 * (std::ldexp(y[i], -info(d).digits) + info(d).tiniest / 2));
  }
}
