#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/autograd/node.h"
#include "minim/core/parallel.h"
#include "minim/optim/clip.h"
#include "minim/optim/optimizer.h"

using namespace minim;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Tensor> with_gradients(const std::vector<std::vector<double>>& gradients, DType d) {
  std::vector<Tensor> params;
  for (const auto& g : gradients) {
    Tensor p = zeros({Index(g.size())}, d);
    p.set_grad(tensor(g, p.shape(), d));
    params.push_back(p.set_name("p" + std::to_string(params.size())));
  }
  return params;
}

}  // namespace

TEST_CASE("clip_grad_norm gives the published f64 results for p = 1, 2, 3, 0.5 and infinity") {
  struct Golden {
    double p, norm, a, b, c;
  };
  for (const Golden& g :
       {Golden{2, 13, .23076921301775288, .30769228402367050, .92307685207101150},
        Golden{1, 19, .15789472853185638, .21052630470914185, .63157891412742550},
        Golden{kInf, 12, .24999997916666844, .33333330555555790, .99999991666667380},
        Golden{3, 12.207054953820634, .24575950264740476, .32767933686320630, .98303801058961900},
        Golden{.5, 51.78460969082653, .05793226906563266, .07724302542084355,
               .23172907626253064}}) {
    CAPTURE(g.p);
    auto params = with_gradients({{3, 4}, {0, 12}}, DType::f64);
    CHECK(optim::clip_grad_norm(params, 1, g.p) == doctest::Approx(g.norm).epsilon(3e-16));
    CHECK(params[0].grad().to_vector()[0] == doctest::Approx(g.a).epsilon(1e-15));
    CHECK(params[0].grad().to_vector()[1] == doctest::Approx(g.b).epsilon(1e-15));
    CHECK(params[1].grad().to_vector()[0] == 0);
    CHECK(params[1].grad().to_vector()[1] == doctest::Approx(g.c).epsilon(1e-15));
  }
}

TEST_CASE("clipping keeps the ratio of all gradients, whatever p, and a list clips as one tensor") {
  std::vector<double> large(100), small(100);
  for (size_t i = 0; i < 100; ++i) large[i] = double(i + 1), small[i] = double(i + 1) / 1000;
  for (double p : {.5, 1.5, 2., 4., kInf}) {
    CAPTURE(p);
    auto list = with_gradients({large, std::vector<double>(10, 1.0 / 1000)}, DType::f32);
    const double before = optim::grad_norm(list, p);
    CHECK(optim::clip_grad_norm(list, 2, p) == before);
    CHECK(optim::grad_norm(list, p) == doctest::Approx(2).epsilon(1e-5));
    for (const Tensor& t : list)
      for (size_t i = 0; i < size_t(t.numel()); ++i)
        CHECK(t.grad().to_vector()[i] ==
              doctest::Approx((t.numel() == 100 ? large[i] : .001) * 2 / before).epsilon(1e-5));
    auto within = with_gradients({std::vector<double>(10, 1e-5)}, DType::f32);
    optim::clip_grad_norm(within, 2, p);
    CHECK(within[0].grad().to_vector() == std::vector<double>(10, double(1e-5f)));
    auto one = with_gradients({small}, DType::f64), many = with_gradients({{}, small}, DType::f64);
    CHECK(optim::clip_grad_norm(one, .1, p) == optim::clip_grad_norm(many, .1, p));
    CHECK(one[0].grad().to_vector() == many[1].grad().to_vector());
  }
}

TEST_CASE("a norm that equals the limit still shrinks, by the published 1e-6") {
  auto params = with_gradients({{3, 4}}, DType::f64);
  CHECK(optim::clip_grad_norm(params, 5) == 5);
  CHECK(params[0].grad().to_vector()[0] == doctest::Approx(2.9999994000001).epsilon(1e-14));
  CHECK(params[0].grad().to_vector()[1] == doctest::Approx(3.9999992000002).epsilon(1e-14));
}

TEST_CASE("the clip coefficient shrinks and never grows") {
  CHECK(optim::clip_coefficient(4, 1) == 1 / (4 + 1e-6));
  CHECK(optim::clip_coefficient(0.5, 1) == 1);
  CHECK(optim::clip_coefficient(0, 1) == 1);
  CHECK(optim::clip_coefficient(INFINITY, 1) == 1);
}

TEST_CASE("gradients whose norm is within the limit stay as they are") {
  auto params = with_gradients({{.3, .4}}, DType::f64);
  CHECK(optim::clip_grad_norm(params, 1) == doctest::Approx(.5));
  CHECK(params[0].grad().to_vector() == std::vector<double>{.3, .4});
  CHECK(optim::clip_grad_norm(std::vector<Tensor>{zeros({2})}, 1) == 0);
}

TEST_CASE(
    "R5: the norm of f16 gradients is summed wide, and a norm that is not finite multiplies "
    "nothing") {
  auto params = with_gradients({{300}}, DType::f16);
  CHECK(optim::clip_grad_norm(params, 1) == 300);
  CHECK(params[0].grad().item() == doctest::Approx(1).epsilon(1e-6));
  for (double bad : {kInf, std::nan("")}) {
    auto broken = with_gradients({{3, bad}, {4}}, DType::f32);
    CHECK(!std::isfinite(optim::clip_grad_norm(broken, 1)));
    CHECK(broken[0].grad().to_vector()[0] == 3);
    CHECK(broken[1].grad().item() == 4);
    optim::StepResult r = optim::SGD(broken).step();
    CHECK(!r.stepped);
    CHECK(r.first_bad == "'p0'");
  }
}

TEST_CASE("S1: clipping gradients that still carry the loss scale is an error that names the fix") {
  auto params = with_gradients({{.3 * 65536, .4 * 65536}}, DType::f32);
  set_carried_scale(params[0].grad(), 65536);
  for (int way : {0, 1}) {
    std::string text;
    try {
      way ? optim::clip_grad_value(params, 1) : void(optim::clip_grad_norm(params, 1));
    } catch (const Error& e) {
      text = e.what();
    }
    CAPTURE(text);
    CHECK(text.find(
              "'p0' still carries the loss scale 65536; call scaler.unscale(optimizer) first") !=
          std::string::npos);
  }
  CHECK(params[0].grad().to_vector()[0] == double(float(.3 * 65536)));
}

TEST_CASE("the norm does not depend on the number of threads") {
  std::vector<double> g(100003);
  for (size_t i = 0; i < g.size(); ++i) g[i] = std::sin(double(i)) / 7;
  auto params = with_gradients({g, {1}, g}, DType::f32);
  set_threads(1);
  double one = optim::grad_norm(params);
  set_threads(3);
  CHECK(optim::grad_norm(params) == one);
  set_threads(0);
  CHECK(one == doctest::Approx(std::sqrt(100003.0 / 49 + 1)).epsilon(1e-5));
}

TEST_CASE("clip_grad_value clamps, also infinities, and leaves NaN") {
  auto params = with_gradients({{3, -4, .5, kInf, std::nan("")}}, DType::f32);
  optim::clip_grad_value(params, 2);
  auto g = params[0].grad().to_vector();
  CHECK(std::vector<double>(g.begin(), g.end() - 1) == std::vector<double>{2, -2, .5, 2});
  CHECK(std::isnan(g[4]));
  std::vector<double> steps(100);
  for (size_t i = 0; i < 100; ++i) steps[i] = (double(i) - 50) / 5;
  auto many = with_gradients({steps, std::vector<double>(4, 2)}, DType::f64);
  many.push_back(zeros({3}));  // without a gradient
  optim::clip_grad_value(many, 2.5);
  for (double& v : steps) v = std::clamp(v, -2.5, 2.5);
  CHECK(many[0].grad().to_vector() == steps);
  CHECK(many[1].grad().to_vector() == std::vector<double>(4, 2));
}

TEST_CASE("clipping refuses limits and norms that make no sense") {
  auto params = with_gradients({{1}}, DType::f32);
  CHECK_THROWS_AS(optim::clip_grad_norm(params, -1), Error);
  CHECK_THROWS_AS(optim::clip_grad_norm(params, std::nan("")), Error);
  CHECK_THROWS_AS(optim::clip_grad_norm(params, 1, 0), Error);
  CHECK_THROWS_AS(optim::clip_grad_value(params, -1), Error);
  optim::SGD opt(params);
  CHECK_THROWS_AS(opt.step({.max_norm = -1}), Error);
  CHECK_THROWS_AS(opt.step({.max_norm = std::nan("")}), Error);
  CHECK(opt.step({.max_norm = kInf}).stepped);
  CHECK_NOTHROW(optim::clip_grad_norm(params, kInf));
}
