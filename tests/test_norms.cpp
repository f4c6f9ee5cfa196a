#include <array>
#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/core/sum.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

/// Channel 0 holds 1 2 3 6 (mean 3, variance 3.5), channel 1 holds -1 1 -1 1 (0 and 1).
Tensor two_channels(DType dtype = DType::f64) {
  return shaped({1, 2, -1, 1, 3, 6, -1, 1}, {2, 2, 2}, dtype);
}

}  // namespace

TEST_CASE("batch_norm gives what is computed by hand") {
  const double r0 = 1 / std::sqrt(3.5 + 1e-5), r1 = 1 / std::sqrt(1 + 1e-5);
  check_close(batch_norm(two_channels()).to_vector(), {-2 * r0, -r0, -r1, r1, 0, 3 * r0, -r1, r1},
              1e-14);
  Tensor weight = tensor({2, 3}, DType::f64), bias = tensor({10, 20}, DType::f64);
  check_close(batch_norm(two_channels(), Tensor(), Tensor(), weight, bias).to_vector(),
              {10 - 4 * r0, 10 - 2 * r0, 20 - 3 * r1, 20 + 3 * r1, 10, 10 + 6 * r0, 20 - 3 * r1,
               20 + 3 * r1},
              1e-14);
  Tensor mean = tensor({1, 0}, DType::f64), var = tensor({4, 1}, DType::f64);
  check_close(batch_norm(two_channels(), mean, var, Tensor(), Tensor(), {.eps = 0}).to_vector(),
              {0, 0.5, -1, 1, 1, 2.5, -1, 1}, 1e-14);
}

TEST_CASE("batch_norm_update moves the running statistics with the unbiased variance") {
  Tensor mean = zeros({2}), var = ones({2}), x = two_channels(DType::f32);
  Tensor y = batch_norm_update(x, mean, var);
  CHECK(y.to_vector() == batch_norm(x).to_vector());
  check_close(mean.to_vector(), {0.3, 0}, 1e-6);
  check_close(var.to_vector(), {0.9 + 0.1 * 14 / 3, 0.9 + 0.1 * 4 / 3}, 1e-6);
  batch_norm_update(x, mean, var, Tensor(), Tensor(), {.momentum = 1});
  check_close(mean.to_vector(), {3, 0}, 1e-6);
  check_close(var.to_vector(), {14.0 / 3, 4.0 / 3}, 1e-6);
}

TEST_CASE("batch_norm of 16 bits keeps its dtype beside fp32 parameters and computes in fp32") {
  // 300 squared does not fit f16.
  Tensor x = shaped({-300, 300, -300, 300}, {4, 1}, DType::f16), mean = zeros({1}), var = ones({1});
  for (bool inside : {false, true}) {
    std::unique_ptr<amp::Autocast> region;
    if (inside) region = std::make_unique<amp::Autocast>(DType::f16);
    Tensor y = batch_norm_update(x, mean, var, ones({1}), zeros({1}));
    CHECK(y.dtype() == DType::f16);
    CHECK(y.to_vector() == std::vector<double>{-1, 1, -1, 1});
  }
  CHECK(mean.dtype() == DType::f32);
  CHECK(var.item() > 20000);
}

TEST_CASE("batch_norm refuses statistics of one value, and one running statistic alone") {
  CHECK(has(error_of([] { batch_norm(ones({1, 3})); }), "one value per channel"));
  CHECK(error_of([] { batch_norm(ones({1, 3}), zeros({3}), ones({3})); }).empty());
  CHECK(has(error_of([] { batch_norm(ones({2, 3}), zeros({3})); }), "given together"));
  CHECK(has(error_of([] {
              batch_norm(ones({2, 3}), Tensor(), Tensor(), ones({2}));
            }),
            "weight has shape (2), expected (3)"));
  CHECK(has(error_of([] { batch_norm(ones({3})); }), "(N, C, ...)"));
}

TEST_CASE("group_norm normalises neighbouring channels together") {
  Tensor x = noise({3, 4, 5}, DType::f64);
  // One group: layer_norm over everything but N. As many groups as channels: over each channel.
  check_close(group_norm(x).to_vector(), layer_norm(x.reshape({3, 20})).to_vector(), 1e-12);
  check_close(group_norm(x, Tensor(), Tensor(), {.num_groups = 4}).to_vector(),
              layer_norm(x).to_vector(), 1e-12);
  Tensor weight = tensor({1, 2, 3, 4}, DType::f64), bias = tensor({5, 6, 7, 8}, DType::f64);
  Tensor halves = layer_norm(x.reshape({3, 2, 10})).reshape({3, 4, 5});
  check_close(group_norm(x, weight, bias, {.num_groups = 2}).to_vector(),
              (halves * weight.reshape({4, 1}) + bias.reshape({4, 1})).to_vector(), 1e-12);
  CHECK(has(error_of([&] { group_norm(x, Tensor(), Tensor(), {.num_groups = 3}); }),
            "3 groups do not divide the 4 channels"));
}

TEST_CASE("what a weight shared by rows gets is summed in the order of sums on any threads" *
          doctest::test_suite("host")) {
  constexpr Index kRows = 2309, kWidth = 37;
  const Tensor x = noise({kRows, kWidth}), g = noise({kRows, kWidth}, DType::f32, 5);
  const auto gradients = [](const Tensor& from, const Tensor& to, bool of_rows = true) {
    const Tensor rows = from.clone().set_requires_grad(of_rows),
                 weight = noise({kWidth}, DType::f32, 3).set_requires_grad(),
                 bias = zeros({kWidth}).set_requires_grad();
    layer_norm(rows, weight, bias).backward(to);
    return std::array{weight.grad(), bias.grad(), rows.grad()};
  };
  std::vector<std::array<Tensor, 3>> each;
  for (Index r = 0; r < kRows; ++r)
    each.push_back(gradients(x.slice(0, r, r + 1), g.slice(0, r, r + 1)));
  for (Index rows : {Index{1}, Index{15}, Index{1025}, kRows})
    for (int n : {1, 3, 40}) {
      const Threads threads(n);
      const Tensor some = x.slice(0, 0, rows), to = g.slice(0, 0, rows);
      const auto all = gradients(some, to), shared = gradients(some, to, false);
      int wrong = 0;
      for (size_t k = 0; k < 2; ++k)
        for (size_t j = 0; j < size_t(kWidth); ++j) {
          const float sum =
              sum16<float>(rows, [&](Index r) { return each[size_t(r)][k].span<float>()[j]; });
          wrong += all[k].span<float>()[j] != sum || shared[k].span<float>()[j] != sum;
        }
      for (size_t i = 0; i < size_t(rows * kWidth); ++i)
        wrong += all[2].span<float>()[i] != each[i / kWidth][2].span<float>()[i % kWidth];
      CHECK(wrong == 0);
    }
}

TEST_CASE("rows that lie in lines of any stride have the bits of rows that follow on each other") {
  for (DType dtype : {DType::f32, DType::f16})
    for (Index width : {3, 40, 900}) {
      const Tensor weight = noise({width}, DType::f32, 3);
      const auto results = [&](const Tensor& x, const Tensor& g) {
        const Tensor leaf = x.set_requires_grad();
        const Tensor y = layer_norm(leaf, weight);
        y.backward(g);
        return std::array{y.detach().to_vector(), leaf.grad().contiguous().to_vector()};
      };
      const Tensor x = noise({19, 5, width + 1}, DType::f32).to(dtype),
                   g = noise({5, 19, width}, DType::f32, 5).to(dtype);
      const Tensor across = x.transpose(0, 1).slice(2, 0, width);
      CHECK(results(across.detach(), g) == results(across.contiguous().detach(), g));
    }
}

// With eps = 0 a row of zeros has an infinite slope, or a NaN one. The rest of a shared operand's
// gradient comes from the rows that were chosen.
TEST_CASE("N1: a row that where leaves out of a norm sends no gradient on, even with eps 0") {
  using List = std::vector<Tensor>;
  struct Case {
    const char* name;
    std::vector<Shape> parameters;  // beside x, on which the row has no hold
    bool hides;                     // a row of zeros has a finite gradient
    Tensor (*f)(const Tensor& x, const List& p);
  };
  const Case cases[] = {
      {"rms_norm",
       {{4}},
       false,
       [](const Tensor& x, const List& p) { return rms_norm(x, p[0], {.eps = 0}); }},
      {"layer_norm",
       {{4}, {4}},
       false,
       [](const Tensor& x, const List& p) { return layer_norm(x, p[0], p[1], {.eps = 0}); }},
      {"group_norm",
       {{4}, {4}},
       false,
       [](const Tensor& x, const List& p) {
         return group_norm(x, p[0], p[1], {.num_groups = 1, .eps = 0});
       }},
      {"batch_norm",
       {{2}, {2}},
       false,
       [](const Tensor& x, const List& p) {
         return batch_norm(x.transpose(0, 1), {}, {}, p[0], p[1], {.eps = 0}).transpose(0, 1);
       }},
      {"batch_norm of a running variance of 0",
       {{2}, {2}},
       false,
       [](const Tensor& x, const List& p) {
         return batch_norm(x.transpose(0, 1), zeros({2}), tensor({0, 1}), p[0], p[1], {.eps = 0})
             .transpose(0, 1);
       }},
      {"batch_norm of one row of a channel",
       {{4}, {4}},
       true,
       [](const Tensor& x, const List& p) {
         return batch_norm(x, zeros({4}), ones({4}), p[0], p[1], {.eps = 0});
       }},
      {"normalize",
       {},
       true,
       [](const Tensor& x, const List&) { return normalize(x, {.eps = 0}); }},
      {"cosine_similarity",
       {{2, 4}},
       true,
       [](const Tensor& x, const List& p) {
         return cosine_similarity(x, p[0], {.eps = 0}).unsqueeze(1);
       }},
  };
  const double nan = std::nan("");
  auto finite = [](const std::vector<std::vector<double>>& gradients) {
    for (const auto& g : gradients)
      for (double v : g)
        if (!std::isfinite(v)) return false;
    return true;
  };
  for (const Case& c : cases)
    for (DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      CAPTURE(std::string(c.name));
      CAPTURE(std::string(name_of(d)));
      auto gradients = [&](double bad, bool chosen) {
        const Tensor x = shaped({bad, bad, bad, bad, 1, -2, 3, 0.5}, {2, 4}, d);
        List leaves{x.set_requires_grad()};
        for (const Shape& shape : c.parameters)
          leaves.push_back(noise(shape, d, 7).set_requires_grad());
        const Tensor y = c.f(x, {leaves.begin() + 1, leaves.end()});
        const Tensor keep = shaped({double(chosen), 1}, {2, 1}, DType::boolean);
        where(keep, y, 0.0).backward(noise(y.shape(), y.dtype(), 3));
        std::vector<std::vector<double>> out;
        for (const Tensor& leaf : leaves) out.push_back(leaf.grad().to_vector());
        return out;
      };
      const auto sane = gradients(2.5, false);
      for (double bad : {0.0, nan, HUGE_VAL}) CHECK(gradients(bad, false) == sane);
      CHECK(finite(sane));
      CHECK(std::vector(sane[0].begin(), sane[0].begin() + 4) == std::vector<double>(4, 0));
      for (double bad : {0.0, nan})  // where something arrives nothing is hidden
        if (bad != 0 || !c.hides) CHECK_FALSE(finite(gradients(bad, true)));
    }
  // An infinite slope of a whole channel: of the row that was chosen alone.
  const Tensor x = shaped({0, 1}, {2, 1}, DType::f32).set_requires_grad();
  const Tensor y = batch_norm(x, zeros({1}), zeros({1}), {}, {}, {.eps = 0});
  where(shaped({0, 1}, {2, 1}, DType::boolean), y, 0.0).backward(ones({2, 1}));
  CHECK(gradient_of(x) == std::vector<double>{0, HUGE_VAL});
}

TEST_CASE("batch_norm_update refuses a momentum that is no share") {
  const Tensor x = tensor({1, 2, 3, 4}).reshape({4, 1});
  Tensor mean = zeros({1}), var = ones({1});
  for (double bad : {-.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_WITH_AS(
        batch_norm_update(x, mean, var, Tensor(), Tensor(), {.momentum = bad}),
        doctest::Contains("[batch_norm_update] momentum is the share of the batch"), Error);
  CHECK(mean.item() == 0);
  CHECK(var.item() == 1);
}
