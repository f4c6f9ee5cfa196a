// Reductions, normalisations and losses on the inputs that went wrong in the field. Names begin
// with the case's id.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/core/random.h"
#include "minim/ops/functional.h"

using namespace minim;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The gradient of sum(f(x)) at x.
template <class F>
std::vector<double> gradient(const Tensor& x, F f) {
  x.set_requires_grad();
  f(x).backward(ones(f(x).shape(), f(x).dtype()));
  return x.grad().to_vector();
}

bool all_near(const std::vector<double>& v, double want, double tolerance = 0) {
  for (double x : v)
    if (!(std::fabs(x - want) <= tolerance)) return false;
  return true;
}

Tensor alternating(const Shape& shape, double size, DType dtype) {
  std::vector<double> v(size_t(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = i % 2 ? -size : size;
  return tensor(v, shape, dtype);
}

}  // namespace

TEST_CASE("R1: layer_norm of +-512 in f16 is +-1, though its variance overflows f16") {
  Tensor x = alternating({2, 64}, 512, DType::f16), y = layer_norm(x);
  CHECK(y.dtype() == DType::f16);
  CHECK(y.to_vector() == alternating({2, 64}, 1, DType::f16).to_vector());
  amp::Autocast lean(DType::f16, amp::Policy::lean);
  CHECK(layer_norm(x, ones({64}), zeros({64})).to_vector() == y.to_vector());
}

TEST_CASE("R2: rms_norm of 64 times 256 in f16 with gain 1 is 1") {
  Tensor y = rms_norm(full({3, 64}, 256, DType::f16), ones({64}, DType::f16));
  CHECK(y.dtype() == DType::f16);
  CHECK(all_near(y.to_vector(), 1));
}

TEST_CASE("R3: the mean of 100000 and of 65520 ones in f16 is 1") {
  CHECK(mean(ones({100000}, DType::f16)).item() == 1);
  CHECK(mean(ones({65520}, DType::f16)).item() == 1);
  CHECK(mean(ones({65520, 2}, DType::bf16), {.axes = {0}}).to_vector() ==
        std::vector<double>{1, 1});
}

TEST_CASE("R3: 3 times 40000 in f16 sum to 120000 under autocast, or with dtype f32") {
  Tensor x = full({3}, 40000, DType::f16);
  CHECK(sum(x, {.dtype = DType::f32}).item() == 120000);
  CHECK(std::isinf(sum(x).item()));
  amp::Autocast on(DType::f16);
  CHECK(sum(x).dtype() == DType::f32);
  CHECK(sum(x).item() == 120000);
}

TEST_CASE("R4: 32 x 1024 losses of 4.2 sum to 137626 in f32") {
  Tensor x = full({32, 1024}, 4.2);
  CHECK(std::fabs(sum(x).item() - 137625.6) < 0.5);
  CHECK(std::fabs(sum(sum(x, {.axes = {0}})).item() - 137625.6) < 0.5);
}

TEST_CASE("R4: a sum of a million f32 is within the error constant of its row") {
  std::vector<double> v(1000000);
  double exact = 0, size = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = double(float(uniform01(Philox::block(4, 0, i)[0])));
    exact += v[i];
    size += std::fabs(v[i]);
  }
  double allowed = Op::sum.error * 0x1p-24 * (exact + size);
  CHECK(std::fabs(sum(tensor(v, {1000000})).item() - exact) <= allowed);
  CHECK(std::fabs(sum(sum(tensor(v, {1000, 1000}), {.axes = {0}})).item() - exact) <= allowed);
}

TEST_CASE("N2: the gradient of the norm of a zero vector is 0, whatever p") {
  for (double p : {1.0, 2.0, 3.0, 0.5, kInf})
    for (DType d : {DType::f32, DType::f64, DType::f16}) {
      CAPTURE(p);
      CHECK(
          all_near(gradient(zeros({3}, d), [&](const Tensor& x) { return norm(x, {.p = p}); }), 0));
    }
}

TEST_CASE("N2: a zero row of a norm has gradient 0 and the others keep theirs") {
  auto d = gradient(tensor(std::array{0.0, 0.0, 3.0, 4.0}, {2, 2}),
                    [](const Tensor& x) { return norm(x, {.axes = {1}}); });
  CHECK(all_near({d[0], d[1]}, 0));
  CHECK(d[2] == doctest::Approx(0.6));
  CHECK(d[3] == doctest::Approx(0.8));
}

TEST_CASE("norm neither overflows nor vanishes where its result fits") {
  CHECK(norm(full({4}, 1e30)).item() == doctest::Approx(2e30));
  CHECK(norm(full({4}, 1e-30)).item() == doctest::Approx(2e-30).scale(0));
  CHECK(norm(tensor({1, kInf})).item() == kInf);
  CHECK(std::isnan(norm(tensor({kInf, kNan})).item()));
}

TEST_CASE("C1: no eps vanishes in f16: constant and zero rows stay finite") {
  for (amp::Policy policy : {amp::Policy::torch, amp::Policy::lean}) {
    amp::Autocast on(DType::f16, policy);
    for (double v : {0.0, 1.0}) {
      CHECK(all_near(layer_norm(full({2, 8}, v, DType::f16)).to_vector(), 0));
      CHECK(all_near(
          gradient(full({2, 8}, v, DType::f16), [](const Tensor& x) { return layer_norm(x); }), 0,
          1e-4));
    }
    CHECK(all_near(rms_norm(zeros({2, 8}, DType::f16)).to_vector(), 0));
    CHECK(all_near(gradient(zeros({2, 8}, DType::f16), [](const Tensor& x) { return rms_norm(x); }),
                   1000, 1e-3));
  }
}

TEST_CASE("rows of nothing but -inf give no NaN, forward or backward") {
  auto masked = [] { return full({2, 3}, -kInf); };
  CHECK(all_near(softmax(masked()).to_vector(), 0));
  CHECK(all_near(gradient(masked(), [](const Tensor& x) { return softmax(x); }), 0));
  for (double v : log_softmax(masked()).to_vector()) CHECK(v == -kInf);
  CHECK(all_near(gradient(masked(), [](const Tensor& x) { return log_softmax(x); }), 0));
  for (double v : logsumexp(masked(), {.axes = {1}}).to_vector()) CHECK(v == -kInf);
  CHECK(
      all_near(gradient(masked(), [](const Tensor& x) { return logsumexp(x, {.axes = {1}}); }), 0));
}

TEST_CASE("softmax and logsumexp hold where exp overflows") {
  Tensor x = tensor({1000, 1000, -kInf});
  CHECK(softmax(x).to_vector() == std::vector<double>{0.5, 0.5, 0});
  CHECK(logsumexp(x).item() == doctest::Approx(1000 + std::log(2)));
  CHECK(log_softmax(x).to_vector()[0] == doctest::Approx(-std::log(2)));
}

TEST_CASE("max passes NaN on, and its gradient goes to the first largest element of each row") {
  CHECK(std::isnan(max(tensor({1, kNan, 3})).item()));
  auto d = gradient(tensor(std::array{1.0, 5.0, 5.0, 7.0, 7.0, 7.0}, {2, 3}),
                    [](const Tensor& x) { return max(x, {.axes = {1}}); });
  CHECK(d == std::vector<double>{0, 1, 0, 1, 0, 0});
  Tensor big = arange(3).to(DType::i64);
  CHECK(max(big).dtype() == DType::i64);
  CHECK_THROWS_WITH_AS(max(zeros({2, 0}), {.axes = {1}}), doctest::Contains("of no elements"),
                       Error);
}

TEST_CASE("argmax: the first index on ties, NaN is the largest, none named means flattened") {
  Tensor x = tensor(std::array{1.0, 5.0, 5.0, 7.0, kNan, kNan}, {2, 3});
  CHECK(argmax(x, {.axis = 1}).to_vector() == std::vector<double>{1, 1});
  CHECK(argmax(x, {.axis = 0}).to_vector() == std::vector<double>{1, 1, 1});
  CHECK(argmax(x).item() == 4);
  CHECK(argmax(x).dtype() == DType::i64);
  CHECK(argmax(x, {.axis = -1, .keepdim = true}).shape() == Shape{2, 1});
  CHECK(argmax(x.set_requires_grad(), {.axis = 1}).requires_grad() == false);
}

TEST_CASE("argmax counts beyond the integers of fp32" * doctest::test_suite("host")) {
  constexpr Index n = (1 << 24) + 4;
  Tensor x = zeros({n}, DType::f16);
  x.span<f16>()[size_t(n - 3)] = f16(1.0f);
  CHECK(argmax(x).item() == double(n - 3));
}

TEST_CASE("sum: integers and bool become i64, dtype names another result") {
  Tensor ints = arange(5);
  CHECK(sum(ints).dtype() == DType::i64);
  CHECK(sum(ints).item() == 10);
  CHECK(sum(full({300}, 1, DType::boolean)).item() == 300);
  CHECK(sum(full({300}, 1, DType::u8)).item() == 300);
  CHECK(sum(ints, {.dtype = DType::f32}).dtype() == DType::f32);
  CHECK_THROWS_WITH_AS(sum(ones({2}), {.dtype = DType::i64}), doctest::Contains("convert x first"),
                       Error);
}

TEST_CASE("reductions refuse axes out of range or named twice, and mean refuses integers") {
  Tensor x = ones({2, 3});
  CHECK_THROWS_WITH_AS(sum(x, {.axes = {2}}), doctest::Contains("sum"), Error);
  CHECK_THROWS_WITH_AS(var(x, {.axes = {0, -2}}), doctest::Contains("named twice"), Error);
  CHECK_THROWS_WITH_AS(mean(arange(3)), doctest::Contains("convert it first"), Error);
  CHECK_THROWS_WITH_AS(norm(x, {.p = 0}), doctest::Contains("must be positive"), Error);
}

TEST_CASE("normalisations name a parameter of the wrong shape, and read one that is a column") {
  Tensor x = tensor(std::array{1.0, 2.0, 3.0, 6.0}, {2, 2});
  CHECK_THROWS_WITH_AS(layer_norm(x, ones({3})), doctest::Contains("weight has shape (3)"), Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, ones({1, 2})), doctest::Contains("expected (2)"), Error);
  CHECK_THROWS_WITH_AS(layer_norm(Tensor(1.0)), doctest::Contains("0-dim"), Error);
  Tensor columns = tensor(std::array{1.0, 9.0, 2.0, 9.0}, {2, 2});
  Tensor column = columns.select(1, 0);
  CHECK(rms_norm(x, column).to_vector() == rms_norm(x, tensor({1, 2})).to_vector());
}

TEST_CASE("losses are f32 and never square or sum in 16 bits") {
  Tensor x = full({100}, 300, DType::f16), target = zeros({100}, DType::f16);
  CHECK(mse(x, target).dtype() == DType::f32);
  CHECK(mse(x, target).item() == 90000);
  CHECK(mse(x, target, {.reduction = Reduction::sum}).item() == 9000000);
  CHECK(mse(x, target, {.reduction = Reduction::none}).dtype() == DType::f32);
  CHECK_THROWS_WITH_AS(mse(ones({3, 1}), ones({3})), doctest::Contains("must be equal"), Error);
}

TEST_CASE("bce_with_logits keeps its value and slope far from 0, where bce stops at -100") {
  Tensor logits = tensor({1000, -1000, 0}), target = tensor({0, 1, 1});
  CHECK(bce_with_logits(logits, target, {.reduction = Reduction::sum}).item() ==
        doctest::Approx(2000 + std::log(2)));
  auto d = gradient(logits, [&](const Tensor& x) {
    return bce_with_logits(x, target, {.reduction = Reduction::sum});
  });
  CHECK(d == std::vector<double>{1, -1, -0.5});
  CHECK(bce(tensor({0, 1}), tensor({1, 0})).item() == 100);
  CHECK(bce(tensor({0, 1}), tensor({0, 1})).item() == 0);
}

TEST_CASE("bce is refused under autocast, and the error names bce_with_logits") {
  amp::Autocast on(DType::f16);
  CHECK_THROWS_WITH_AS(bce(tensor({0.5}), tensor({1})), doctest::Contains("bce_with_logits"),
                       Error);
}

TEST_CASE("a target to ignore may be a class: it counts neither in the loss nor in its gradient") {
  const Tensor logits = tensor(std::array{1., 2., 3., 0., 5., 1., 2., 2., 0.}, {3, 3});
  const Tensor targets = tensor({0, 1, 2}, DType::i64), some = tensor({0, 2}, DType::i64);
  const Tensor kept = tensor(std::array{1., 2., 3., 2., 2., 0.}, {2, 3});
  CHECK(cross_entropy(logits, targets, {.ignore_index = 1}).item() ==
        cross_entropy(kept, some).item());
  CHECK(nll_loss(logits, targets, {.ignore_index = 1}).item() == nll_loss(kept, some).item());
  auto d = gradient(logits, [&](const Tensor& x) {
    return cross_entropy(x, targets, {.ignore_index = 1, .reduction = Reduction::sum});
  });
  CHECK(std::vector<double>(d.begin() + 3, d.begin() + 6) == std::vector<double>(3, 0));
  CHECK(d[0] != 0);
}

TEST_CASE("var and std are unbiased unless the correction is 0") {
  const Tensor x = tensor({1, 2, 3, 4}, DType::f64);
  CHECK(var(x).item() == doctest::Approx(5.0 / 3).epsilon(1e-14));
  CHECK(var(x, {.correction = 0}).item() == 1.25);
  CHECK(minim::std(x).item() == doctest::Approx(std::sqrt(5.0 / 3)).epsilon(1e-14));
}
