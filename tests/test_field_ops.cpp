// Pointwise ops, products, extremes and losses on the inputs that went wrong in the field, and on
// values whose result is known. Names begin with the case's id where there is one.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/ops/functional.h"

using namespace minim;

namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The gradient of sum(f(x)) at x.
template <class F>
Values gradient(const Tensor& x, F f) {
  x.set_requires_grad();
  const Tensor y = f(x);
  y.backward(ones(y.shape(), y.dtype()));
  return x.grad().to_vector();
}

/// Each within a relative error, so that tails count.
void check_near(const Values& got, const Values& want, double error = 1e-6) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << " is " << got[i] << ", expected " << want[i]);
    CHECK((got[i] == want[i] || std::fabs(got[i] - want[i]) <= error * std::fabs(want[i])));
  }
}

}  // namespace

TEST_CASE("N1: what where does not choose sends no NaN into the gradient") {
  auto root = [](const Tensor& x) { return where(x == 0.0, 0.0, x * sqrt(x)); };
  CHECK(gradient(tensor({0}), root) == Values{0});
  auto half = [](const Tensor& x) { return where(x > 0.0, sqrt(x), x); };
  CHECK(gradient(tensor({-1, -4}), half) == Values{1, 1});
  auto logs = [](const Tensor& x) { return where(x > -1.0, log1p(x), softplus(x)); };
  CHECK(std::isfinite(gradient(tensor({-1}), logs)[0]));
}

TEST_CASE("N2: the gradient of a standard deviation of 0 is 0, and other rows keep theirs") {
  for (DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Tensor x = tensor({3, 3, 3}, d);
    CHECK(minim::std(x).item() == 0);
    CHECK(gradient(x, [](const Tensor& v) { return minim::std(v); }) == Values{0, 0, 0});
  }
  const Tensor rows = tensor({2, 2, 1, 3}).reshape({2, 2}).detach();
  const double slope = std::sqrt(0.5);
  check_near(gradient(rows, [](const Tensor& v) { return minim::std(v, {.axes = {1}}); }),
             {0, 0, -slope, slope});
}

TEST_CASE("std is the root of var, with or without Bessel's correction") {
  const Tensor x = tensor({2, 4, 4, 4, 5, 5, 7, 9});
  CHECK(minim::std(x, {.correction = 0}).item() == 2);
  CHECK(minim::std(x).item() == doctest::Approx(std::sqrt(32.0 / 7)));
  CHECK(std::isnan(minim::std(ones({1})).item()));
  CHECK(minim::std(tensor({-60000, 60000}, DType::f16), {.correction = 0}).item() == 60000);
}

TEST_CASE("C2: a zero vector of f16 is normalised to 0 with an eps that f16 does not have") {
  for (amp::Policy policy : {amp::Policy::torch, amp::Policy::lean}) {
    amp::Autocast on(DType::f16, policy);
    const Tensor x = zeros({3}, DType::f16);
    CHECK(normalize(x, {.dim = 0, .eps = 1e-12}).to_vector() == Values{0, 0, 0});
    CHECK(gradient(x, [](const Tensor& v) { return normalize(v, {.dim = 0}); }) == Values{0, 0, 0});
  }
}

TEST_CASE("normalize divides rows by their p-norm and its gradient lies across them") {
  const Tensor x = tensor({3, 4, 0, 0, -1, 1}).reshape({3, 2}).detach();
  check_near(normalize(x).to_vector(), {0.6, 0.8, 0, 0, -std::sqrt(0.5), std::sqrt(0.5)});
  check_near(normalize(x, {.p = 1}).to_vector(), {3 / 7., 4 / 7., 0, 0, -0.5, 0.5});
  check_near(normalize(x, {.p = kInf}).to_vector(), {0.75, 1, 0, 0, -1, 1});
  check_near(normalize(x, {.eps = 10}).to_vector(), {0.3, 0.4, 0, 0, -0.1, 0.1});
  check_near(gradient(x, [](const Tensor& v) { return normalize(v); }),
             {0.8 / 25, -0.6 / 25, 0, 0, std::sqrt(0.5), std::sqrt(0.5)}, 1e-5);
  check_near(normalize(full({1, 4}, 1e30)).to_vector(), {0.5, 0.5, 0.5, 0.5});
  CHECK_THROWS_WITH_AS(normalize(x, {.p = 0}), doctest::Contains("[normalize] p is 0"), Error);
}

TEST_CASE("cosine_similarity of zero, tiny and huge vectors stays finite with its gradient") {
  const Tensor x = tensor({1, 0, 0, 0, 1e30, 1e30, 1, 2}).reshape({4, 2}).detach();
  const Tensor y = tensor({1, 1, 3, 4, 1e30, 1e30, -2, 1}).reshape({4, 2});
  check_near(cosine_similarity(x, y).to_vector(), {std::sqrt(0.5), 0, 1, 0});
  const Values d = gradient(x, [&](const Tensor& v) { return cosine_similarity(v, y); });
  check_near({d[0], d[1], d[2], d[3]}, {0, std::sqrt(0.5), 0, 0});
  for (double v : d) CHECK(std::isfinite(v));
  const Tensor a = zeros({1, 3}, DType::f16), b = zeros({1, 3}, DType::f16);
  CHECK(gradient(a, [&](const Tensor& v) { return cosine_similarity(v, b); }) == Values{0, 0, 0});
  const Tensor wide = full({1, 4096}, 300, DType::f16);  // 300^2 * 4096 is inf in f16
  CHECK(cosine_similarity(wide, -wide).item() == -1);
  CHECK_THROWS_WITH_AS(cosine_similarity(ones({2, 3}), ones({3})),
                       doctest::Contains("must be equal"), Error);
}

TEST_CASE("slopes at the kinks: abs and l1 have 0, leaky_relu its negative slope") {
  auto same = [](const Tensor& x) { return x; };
  CHECK(gradient(tensor({-2, 0, 3}), [](const Tensor& x) { return abs(x); }) == Values{-1, 0, 1});
  CHECK(gradient(tensor({-2, 0, 3}), [&](const Tensor& x) {
          return l1(same(x), tensor({0, 0, 3}), {.reduction = Reduction::none});
        }) == Values{-1, 0, 0});
  CHECK(gradient(tensor({-2, 0, 3}), [](const Tensor& x) {
          return leaky_relu(x, {.negative_slope = 0.25});
        }) == Values{0.25, 0.25, 1});
  CHECK(abs(tensor({-3, 2}, DType::i64)).dtype() == DType::i64);
  CHECK(abs(tensor({-3, 2}, DType::i64)).to_vector() == Values{3, 2});
  CHECK(std::isnan(abs(tensor({kNan})).item()));
}

TEST_CASE("softplus and log_sigmoid neither overflow nor lose their tails") {
  const Tensor x = tensor({-1000, -50, 0, 50, 1000});
  const double tail = std::exp(-50.0), ln2 = std::log(2.0);
  check_near(softplus(x).to_vector(), {0, tail, ln2, 50, 1000});
  check_near(softplus(x, {.beta = 0.5, .threshold = 1e9}).to_vector(),
             {0, 2 * std::exp(-25.0), 2 * ln2, 50, 1000});
  check_near(log_sigmoid(x).to_vector(), {-1000, -50, -ln2, -tail, 0});
  check_near(gradient(x.clone(), [](const Tensor& v) { return softplus(v); }),
             {0, tail, 0.5, 1, 1});
  check_near(gradient(x.clone(), [](const Tensor& v) { return log_sigmoid(v); }),
             {1, 1, 0.5, tail, 0});
}

TEST_CASE("log1p, sin and cos hold where the naive forms lose everything") {
  check_near(log1p(tensor({1e-10, -0.5, -1})).to_vector(), {1e-10, -std::log(2.0), -kInf});
  CHECK(std::isnan(log1p(tensor({-2})).item()));
  check_near(sin(tensor({1e8, 256, 257})).to_vector(),
             {std::sin(1e8), std::sin(256), std::sin(257)});
  // L7: in bf16 both positions would be 256
  CHECK(cos(tensor({257})).item() - cos(tensor({256})).item() ==
        doctest::Approx(0.859).epsilon(0.01));
}

TEST_CASE("square of 256 in f16 is inf, and 65536 under autocast") {
  const Tensor x = tensor({256}, DType::f16);
  CHECK(std::isinf(square(x).item()));
  amp::Autocast on(DType::f16);
  CHECK(square(x).item() == 65536);
}

TEST_CASE("maximum and minimum pass NaN on and halve the gradient between equals") {
  const Tensor x = tensor({1, 5, 2, kNan, 0}), y = tensor({1, 2, 5, 0, kNan});
  const Values up = maximum(x, y).to_vector(), down = minimum(x, y).to_vector();
  CHECK(Values(up.begin(), up.begin() + 3) == Values{1, 5, 5});
  CHECK(Values(down.begin(), down.begin() + 3) == Values{1, 2, 2});
  for (size_t i : {3, 4}) CHECK((std::isnan(up[i]) && std::isnan(down[i])));
  auto of = [&](auto f) {
    return gradient(x.detach().clone(), [&](const Tensor& v) { return f(v, y); });
  };
  CHECK(of([](auto& a, auto& b) { return maximum(a, b); }) == Values{0.5, 1, 0, 1, 1});
  CHECK(of([](auto& a, auto& b) { return minimum(a, b); }) == Values{0.5, 0, 1, 1, 1});
  CHECK(maximum(arange(3), 1).to_vector() == Values{1, 1, 2});
}

TEST_CASE("prod: zeros are no special case, integers become i64, autocast gives f32") {
  auto d = [](std::initializer_list<double> x) {
    return gradient(tensor(x), [](const Tensor& v) { return prod(v); });
  };
  CHECK(d({2, 3, 4}) == Values{12, 8, 6});
  CHECK(d({2, 0, 4}) == Values{0, 8, 0});
  CHECK(d({0, 3, 0}) == Values{0, 0, 0});
  CHECK(prod(tensor({200, 200}, DType::u8)).item() == 40000);
  CHECK(prod(zeros({0})).item() == 1);
  const Tensor x = tensor({300, 300}, DType::f16);
  CHECK(std::isinf(prod(x).item()));
  CHECK(prod(x, {.dtype = DType::f64}).dtype() == DType::f64);
  amp::Autocast on(DType::f16);
  CHECK(prod(x).item() == 90000);
}

TEST_CASE("cumsum runs along its axis, and ten million terms keep their last bits" *
          doctest::test_suite("host")) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  CHECK(cumsum(x).to_vector() == Values{1, 3, 6, 4, 9, 15});
  CHECK(cumsum(x, {.dim = 0}).to_vector() == Values{1, 2, 3, 5, 7, 9});
  CHECK(cumsum(ones({300}, DType::boolean)).to_vector().back() == 300);
  CHECK(cumsum(tensor({1, kInf, 2})).to_vector() == Values{1, kInf, kInf});
  CHECK(gradient(x.detach().clone(), [](const Tensor& v) { return cumsum(v); }) ==
        Values{3, 2, 1, 3, 2, 1});
  const Tensor long_one = cumsum(full({10000000}, 0.1));  // a running f32 sum is off by 87937
  CHECK(double(long_one.span<float>().back()) == doctest::Approx(1e6).epsilon(1e-7));
  CHECK(cumsum(ones({4096}, DType::bf16), {.dtype = DType::f32}).to_vector().back() == 4096);
}

TEST_CASE("min and argmin: the first on ties, NaN is the least, integers to their limits" *
          doctest::test_suite("host")) {
  const Tensor x = tensor({4, 1, 1, 7, kNan, 2}).reshape({2, 3}).detach();
  CHECK(min(x, {.axes = {1}}).to_vector()[0] == 1);
  CHECK(std::isnan(min(x, {.axes = {1}}).to_vector()[1]));
  CHECK(argmin(x, {.axis = 1}).to_vector() == Values{1, 1});
  CHECK(argmin(x).item() == 4);
  CHECK(gradient(x, [](const Tensor& v) { return min(v, {.axes = {1}}); }) ==
        Values{0, 1, 0, 0, 1, 0});
  constexpr int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor ints = zeros({3}, DType::i64);
  ints.span<int64_t>()[1] = least;
  CHECK(min(ints).span<int64_t>()[0] == least);
  CHECK(argmin(ints).item() == 1);
  CHECK_THROWS_WITH_AS(min(zeros({2, 0}), {.axes = {1}}), doctest::Contains("[min] of no elements"),
                       Error);
}

TEST_CASE("any and all answer in bool, for every dtype and for no elements") {
  const Tensor x = tensor({0, 0, 2, 0, 1, kNan}).reshape({3, 2});
  CHECK(any(x, {.axes = {1}}).dtype() == DType::boolean);
  CHECK(any(x, {.axes = {1}}).to_vector() == Values{0, 1, 1});
  CHECK(all(x, {.axes = {1}}).to_vector() == Values{0, 0, 1});
  CHECK(any(zeros({0})).item() == 0);
  CHECK(all(zeros({0})).item() == 1);
  CHECK(any(tensor({0, 1e-300}, DType::f64)).item() == 1);  // 0 in f32
  CHECK(all(full({300}, 1, DType::u8)).item() == 1);
  CHECK(any(tensor({0, 6e-8}, DType::f16)).item() == 1);
  CHECK_FALSE(any(tensor({1}).set_requires_grad()).requires_grad());
}

TEST_CASE("nll_loss is cross_entropy after log_softmax, with the same mean and gradient") {
  const Tensor logits = tensor({1, 2, 0.5, -1, 0, 3, 2, 2, 2}).reshape({3, 3}).detach();
  const Tensor target = tensor({2, -100, 0}, DType::i64);
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    auto nll = [&](const Tensor& x) { return nll_loss(log_softmax(x), target, {.reduction = r}); };
    auto both = [&](const Tensor& x) { return cross_entropy(x, target, {.reduction = r}); };
    check_near(nll(logits).to_vector(), both(logits).to_vector());
    check_near(gradient(logits.clone(), nll), gradient(logits.clone(), both), 1e-5);
  }
  const Tensor halves = full({2, 1, 4}, -3.25, DType::f16);
  const Tensor loss = nll_loss(halves, zeros({2, 1}, DType::i64), {.reduction = Reduction::sum});
  CHECK(loss.dtype() == DType::f32);
  CHECK(loss.item() == 6.5);
  CHECK_THROWS_WITH_AS(nll_loss(logits, zeros({2}, DType::i64)), doctest::Contains("does not fit"),
                       Error);
  for (auto* refuse : {+[](const Tensor&x, const Tensor&t) {
                         nll_loss(x, t, {.reduction = Reduction::batchmean});
                       },
                       +[](const Tensor&x, const Tensor&t) {
                         cross_entropy(x, t, {.reduction = Reduction::batchmean});
                       }})
    CHECK_THROWS_WITH_AS(refuse(logits, target), doctest::Contains("batchmean"), Error);
}

TEST_CASE("D1: nll_loss of targets that are all ignored is 0, and so is its gradient") {
  const Tensor x = full({2, 3}, -kInf);
  const Tensor ignored = full({2}, 7, DType::i64);
  auto loss = [&](const Tensor& v) { return nll_loss(v, ignored, {.ignore_index = 7}); };
  CHECK(loss(x).item() == 0);
  CHECK(gradient(x, loss) == Values(6, 0.0));
}

TEST_CASE("D2: nll_loss names a target outside the classes, its position and the range") {
  CHECK_THROWS_WITH_AS(nll_loss(zeros({3, 5}), tensor({0, 4, 9}, DType::i64)),
                       "[nll_loss] target 9 at position (2) is not in [0, 5)", Error);
}

TEST_CASE("l1 and smooth_l1 on known values, and beta 0 is l1") {
  const Tensor x = tensor({0, 0.5, 2, -3}), t = zeros({4});
  CHECK(l1(x, t).item() == 5.5 / 4);
  auto each = [&](double beta) {
    return smooth_l1(x, t, {.reduction = Reduction::none, .beta = beta}).to_vector();
  };
  CHECK(each(1) == Values{0, 0.125, 1.5, 2.5});
  CHECK(each(4) == Values{0, 0.03125, 0.5, 1.125});
  CHECK(each(0) == Values{0, 0.5, 2, 3});
  CHECK(smooth_l1(full({1}, 60000, DType::f16), zeros({1}, DType::f16), {.beta = 1e5}).item() ==
        18000);
  CHECK_THROWS_WITH_AS(smooth_l1(x, t, {.beta = -1}), doctest::Contains("beta is -1"), Error);
}

TEST_CASE("kl_div on known distributions, with and without log_target, and with zeros") {
  const Tensor q = tensor({0.25, 0.25, 0.5, 0.5, 0.5, 0}).reshape({2, 3});
  const Tensor p = tensor({0.5, 0.25, 0.25, 0, 1, 0}).reshape({2, 3});
  const double first = 0.25 * std::log(2.0), second = std::log(2.0);
  auto with = [&](Reduction r) { return kl_div(log(q), p, {.reduction = r}).item(); };
  CHECK(with(Reduction::sum) == doctest::Approx(first + second));
  CHECK(with(Reduction::batchmean) == doctest::Approx((first + second) / 2));
  CHECK(with(Reduction::mean) == doctest::Approx((first + second) / 6));
  CHECK(kl_div(log(q), log(p), {.reduction = Reduction::sum, .log_target = true}).item() ==
        doctest::Approx(first + second));
  for (bool logs : {false, true}) {
    const Tensor target = (logs ? log(p) : p).detach().clone();
    for (double d : gradient(target, [&](const Tensor& t) {
           return kl_div(log(q), t, {.reduction = Reduction::sum, .log_target = logs});
         }))
      CHECK(std::isfinite(d));
  }
  check_near(
      gradient(log(q).detach(),
               [&](const Tensor& x) { return kl_div(x, p, {.reduction = Reduction::batchmean}); }),
      {-0.25, -0.125, -0.125, 0, -0.5, 0});
  CHECK_THROWS_WITH_AS(kl_div(Tensor(0.0), Tensor(1.0), {.reduction = Reduction::batchmean}),
                       doctest::Contains("0-dim"), Error);
}
