// Results and gradients of rowwise ops and losses whose intermediates leave the range of f32 or f64
// though the result fits it. (check_range of testing/ does the same for every row and exponent;
// here are the values that were once wrong, and f64, which has no wider judge there.)
#include <array>
#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/ops/composite.h"
#include "minim/optim/clip.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Function = Tensor (*)(const Tensor&);

/// Four values of either sign, of which none is another's opposite.
Tensor row(DType d, double scale) {
  return tensor({1 * scale, -3 * scale, 2 * scale, 6 * scale}, d).reshape({1, 4});
}
std::vector<double> slope(const Tensor& at, Function f) {
  Tensor x = at.detach().clone().set_requires_grad();
  f(x).backward(shaped({1, -1, 0.5, 2}, f(x).shape(), f(x).dtype()));
  return gradient_of(x);
}

/// What moves with its operand, or not at all: at 2^k the same digits as at 1.
struct Scaled {
  const char* name;
  Function f;
  int degree;  ///< f(a x) = a^degree f(x)
};
const Scaled kScaled[] = {
    {"std",
     [](const Tensor& x) {
       return minim::std(x, {.axes = {1}}).expand({1, 4});
     },
     1},
    {"norm 10",
     [](const Tensor& x) {
       return norm(x, {.axes = {1}, .p = 10}).expand({1, 4});
     },
     1},
    {"norm 0.5",
     [](const Tensor& x) {
       return norm(x, {.axes = {1}, .p = 0.5}).expand({1, 4});
     },
     1},
    {"normalize", [](const Tensor& x) { return normalize(x, {.eps = 0}); }, 0},
    {"layer_norm", [](const Tensor& x) { return layer_norm(x, {}, {}, {.eps = 0}); }, 0},
    {"rms_norm", [](const Tensor& x) { return rms_norm(x, {}, {.eps = 0}); }, 0},
    {"group_norm",
     [](const Tensor& x) { return group_norm(x, {}, {}, {.num_groups = 1, .eps = 0}); }, 0},
    {"batch_norm",
     [](const Tensor& x) {
       return batch_norm(x.transpose(0, 1), {}, {}, {}, {}, {.eps = 0}).transpose(0, 1);
     },
     0},
    {"mean",
     [](const Tensor& x) {
       return mean(x, {.axes = {1}}).expand({1, 4});
     },
     1},
};

}  // namespace

TEST_CASE("norms and deviations keep their digits at every power of two, f64 too") {
  for (DType d : {DType::f32, DType::bf16, DType::f64})
    for (const Scaled& op : kScaled) {
      const std::vector<double> y = op.f(row(d, 1)).to_vector(), dy = slope(row(d, 1), op.f);
      const int low = d == DType::f64 ? -1000 : -120, high = d == DType::f64 ? 1018 : 122;
      for (int k = low; k <= high; k += 7) {
        const double scale = std::ldexp(1.0, k);
        const std::vector<double> got = op.f(row(d, scale)).to_vector();
        const std::vector<double> slopes = slope(row(d, scale), op.f);
        const double eps = d == DType::f64 ? 1e-14 : d == DType::f32 ? 1e-6 : 0.01;
        CAPTURE(std::string(op.name));
        CAPTURE(std::string(name_of(d)));
        CAPTURE(k);
        for (size_t j = 0; j < 4; ++j) {
          CHECK(got[j] / std::pow(scale, op.degree) == doctest::Approx(y[j]).epsilon(eps));
          CHECK(slopes[j] * std::pow(scale, 1 - op.degree) ==
                doctest::Approx(dy[j]).epsilon(eps).scale(0.1));
        }
      }
    }
}

TEST_CASE("std of 1e20 and of 1e-25 is neither inf nor 0") {
  CHECK(minim::std(tensor({1e20, -1e20})).item() == doctest::Approx(std::sqrt(2.) * 1e20));
  CHECK(minim::std(tensor({1e-25, -1e-25})).item() / 1e-25 == doctest::Approx(std::sqrt(2.)));
  CHECK(minim::std(tensor({1e200, -1e200}, DType::f64)).item() ==
        doctest::Approx(std::sqrt(2.) * 1e200));
  CHECK(var(tensor({3e38, 3e38, 3e38})).item() == 0);
}

TEST_CASE("norms of 5e24 in bf16, 1e22 in f32 and 1e200 in f64 are +-1") {
  for (auto [d, size] : {std::pair{DType::bf16, 5e24}, {DType::f32, 1e22}, {DType::f64, 1e200}}) {
    CAPTURE(std::string(name_of(d)));
    Tensor x = tensor({size, -size, size, -size}, d).reshape({1, 4});
    const std::vector<double> ones{1, -1, 1, -1};
    check_close(layer_norm(x).to_vector(), ones, 1e-6);
    check_close(rms_norm(x).to_vector(), ones, 1e-6);
    check_close(group_norm(x, {}, {}, {.num_groups = 1}).to_vector(), ones, 1e-6);
    check_close(batch_norm(x.transpose(0, 1)).to_vector(), ones, 1e-6);
  }
}

TEST_CASE("eps counts as much where a norm is made wider") {
  // var = eps: each value is divided by sqrt(2 eps).
  Tensor x = tensor({1e-21, -1e-21}).reshape({1, 2});
  check_close(layer_norm(x, {}, {}, {.eps = 1e-42}).to_vector(), {std::sqrt(.5), -std::sqrt(.5)},
              1e-6);
  check_close(rms_norm(x, {}, {.eps = 1e-42}).to_vector(), {std::sqrt(.5), -std::sqrt(.5)}, 1e-6);
  check_close(layer_norm(x).to_vector(), {1e-21 / std::sqrt(1e-5), -1e-21 / std::sqrt(1e-5)}, 1e-6);
}

TEST_CASE("a norm with p = 1 has the gradient +-1, however small an element, and p < 2 its own") {
  auto gradient = [](std::initializer_list<double> values, double p, DType d) {
    Tensor x = tensor(values, d).set_requires_grad();
    norm(x, {.p = p}).backward();
    return gradient_of(x);
  };
  CHECK(gradient({3e38, 1e-10}, 1, DType::f32) == std::vector<double>{1, 1});
  CHECK(gradient({1e308, -1e-300, 0}, 1, DType::f64) == std::vector<double>{1, -1, 0});
  for (double p : {0.25, 0.5, 1.25, 1.5}) {
    CAPTURE(p);
    // the slope is (|x| / norm)^(p - 1); the small element is no part of the norm, or nearly none
    CHECK(gradient({1e30, 1e-20}, p, DType::f32)[1] ==
          doctest::Approx(std::pow(1e-50, p - 1)).epsilon(1e-4).scale(0));
    CHECK(
        gradient({1e160, 1e-160}, p, DType::f64)[1] ==
        doctest::Approx(std::pow(1e-160, p - 1) * std::pow(1e-160, p - 1)).epsilon(1e-10).scale(0));
  }
}

TEST_CASE("a p-norm clips gradients of 1e35 and measures those of 1e-35") {
  for (double size : {1e35, 1e-35})
    for (double p : {10., 2., 0.5, 300.}) {
      CAPTURE(size);
      CAPTURE(p);
      Tensor a = zeros({2}), b = zeros({2});
      a.set_grad(tensor({size, -size}));
      b.set_grad(tensor({size, size}));
      const double want = size * std::pow(4, 1 / p);
      CHECK(optim::grad_norm(std::array{a, b}, p) == doctest::Approx(want).epsilon(1e-6));
      optim::clip_grad_norm(std::array{a, b}, 1, p);
      if (size > 1)
        CHECK(a.grad().to_vector()[1] == doctest::Approx(-std::pow(4, -1 / p)).epsilon(1e-5));
    }
  Tensor a = zeros({2}, DType::f64);
  a.set_grad(tensor({3e200, 4e200}, DType::f64));
  CHECK(optim::grad_norm(std::array{a}) == doctest::Approx(5e200).epsilon(1e-14));
}

TEST_CASE("sums and means whose parts leave the range are right where they fit") {
  const std::vector<double> large(40, 3e38);
  Tensor x = tensor(large, {40, 1}, DType::f32);
  CHECK(mean(x).item() == doctest::Approx(3e38).epsilon(1e-7));
  CHECK(mean(x, {.axes = {0}}).item() == doctest::Approx(3e38).epsilon(1e-7));
  CHECK(sum(tensor({3e38, 3e38, -3e38, -2e38})).item() == doctest::Approx(1e38).epsilon(1e-6));
  CHECK(sum(tensor({1e308, 1e308, -1e308, 1.0}, DType::f64)).item() == 1e308);
  CHECK(std::isnan(sum(tensor({kInf, -kInf})).item()));
  CHECK(sum(tensor({3e38, 3e38})).item() == kInf);
  CHECK(cumsum(tensor({1e308, 1e308, -1e308}, DType::f64)).to_vector() ==
        std::vector<double>{1e308, kInf, 1e308});
  CHECK(mse(tensor({1e20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
            zeros({40}))
            .item() == doctest::Approx(1e40 / 40).epsilon(1e-6));
  CHECK(avg_pool2d(tensor(large, {1, 5, 8}, DType::f32), {.kernel_size = 4}).to_vector()[0] ==
        doctest::Approx(3e38));
}

TEST_CASE("a product whose parts leave the range is right where it fits, and so is its gradient") {
  for (auto [d, size] : {std::pair{DType::f32, 1e30}, {DType::f64, 1e300}}) {
    Tensor x = tensor({size, size, 1 / size, 0.5 / size}, d).set_requires_grad();
    Tensor y = prod(x);
    y.backward();
    CHECK(y.item() == doctest::Approx(0.5).epsilon(1e-6));
    check_close(gradient_of(x), {0.5 / size, 0.5 / size, 0.5 * size, size}, 1e-6);
    Tensor z = tensor({size, 0, size, 1 / size}, d).set_requires_grad();
    prod(z).backward();
    check_close(gradient_of(z), {0, size, 0, 0}, 1e-6);
  }
}

TEST_CASE("logsumexp of large values has the slopes of softmax") {
  Tensor x = tensor({1e6, 1e6 - 1, 1e6 - 3}).set_requires_grad();
  logsumexp(x).backward();
  check_close(gradient_of(x), softmax(tensor({0, -1, -3}, DType::f64)).to_vector(), 1e-6);
}

TEST_CASE("label smoothing goes over the classes that are not masked") {
  Tensor target = tensor({1}).to(DType::i64);
  auto loss = [&](const Tensor& x, double s) {
    return cross_entropy(x, target, {.label_smoothing = s});
  };
  Tensor masked = tensor({-kInf, 0.5, -kInf, -kInf, 2}).reshape({1, 5}).set_requires_grad();
  Tensor rest = tensor({0.5, 2}).reshape({1, 2}).set_requires_grad();
  Tensor first = tensor({0}).to(DType::i64);
  for (double s : {0.05, 1.0}) {
    CAPTURE(s);
    masked.set_grad({}), rest.set_grad({});
    Tensor a = loss(masked, s), b = cross_entropy(rest, first, {.label_smoothing = s});
    a.backward(), b.backward();
    CHECK(a.item() == doctest::Approx(b.item()).epsilon(1e-6));
    const std::vector<double> g = gradient_of(masked), want = gradient_of(rest);
    CHECK(g[0] == 0);
    CHECK(g[2] == 0);
    CHECK(g[3] == 0);
    CHECK(g[1] == doctest::Approx(want[0]).epsilon(1e-6));
    CHECK(g[4] == doctest::Approx(want[1]).epsilon(1e-6));
  }
  CHECK(loss(tensor({0, -kInf, 1}).reshape({1, 3}), 0.05).item() == kInf);  // the target itself
}
