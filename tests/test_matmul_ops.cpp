#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "minim/amp/autocast.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("matmul follows the shapes of vectors, matrices and broadcast batches") {
  auto shape = [](const Shape& x, const Shape& y) { return matmul(ones(x), ones(y)).shape(); };
  CHECK(shape({3}, {3}) == Shape{});
  CHECK(shape({3}, {3, 4}) == Shape{4});
  CHECK(shape({2, 3}, {3}) == Shape{2});
  CHECK(shape({5, 2, 3}, {3, 4}) == Shape{5, 2, 4});
  CHECK(shape({5, 1, 2, 3}, {6, 3, 4}) == Shape{5, 6, 2, 4});
  CHECK(matmul(tensor({1, 2, 3}), tensor({4, 5, 6})).item() == 32);
  CHECK(matmul(ones({2, 0}), ones({0, 3})).to_vector() == std::vector<double>(6, 0.0));
}

TEST_CASE("matmul reads transposed and batched views as they are") {
  Tensor x = noise({2, 5, 3}, DType::f64), y = noise({2, 5, 4}, DType::f64, 2);
  Tensor product = matmul(x.transpose(1, 2), y);
  REQUIRE(product.shape() == Shape{2, 3, 4});
  auto xs = x.to_vector(), ys = y.to_vector(), got = product.to_vector();
  for (size_t b = 0; b < 2; ++b)
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 4; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 5; ++k) sum += xs[(b * 5 + k) * 3 + i] * ys[(b * 5 + k) * 4 + j];
        CHECK(got[(b * 3 + i) * 4 + j] == doctest::Approx(sum));
      }
}

TEST_CASE("a product without rows is empty and what it shares gets gradient 0") {
  for (const Shape& shape :
       {Shape{3, 2, 0, 4}, Shape{3, 0, 2, 4}, Shape{0, 3, 4}, Shape{3, 0, 4}}) {
    CAPTURE(shape.rank());
    for (int i = 0; i < 8; ++i) noise({16}) / 0.0 - noise({16}) / 0.0;  // freed blocks hold NaN
    const Tensor x = zeros(shape).set_requires_grad(), y = noise({4, 4}).set_requires_grad(),
                 bias = noise({4}).set_requires_grad();
    for (const Tensor& z : {matmul(x, y), linear(x, y, bias)}) {
      CHECK(z.shape() == shape);
      z.backward(ones(shape));
    }
    CHECK(x.grad().shape() == shape);
    CHECK(gradient_of(y) == std::vector<double>(16, 0));
    CHECK(gradient_of(bias) == std::vector<double>(4, 0));
  }
}

TEST_CASE("matmul names both shapes when they do not fit") {
  std::string inner = error_of([] { matmul(ones({2, 3}), ones({4, 5})); });
  CHECK(has(inner, "(2, 3)"));
  CHECK(has(inner, "(4, 5)"));
  std::string batch = error_of([] { matmul(ones({2, 3, 4}), ones({3, 4, 5})); });
  CHECK(has(batch, "(2, 3, 4)"));
  CHECK(has(batch, "(3, 4, 5)"));
  CHECK(has(error_of([] { matmul(ones({2, 2}), 3.0); }), "[matmul]"));
}

TEST_CASE("R7: products of 16-bit numbers are summed in fp32") {
  const Index n = 65536;
  Tensor quarter = full({n}, 0.25, DType::f16), one = ones({n}, DType::f16);
  CHECK(matmul(quarter, one).item() == 16384);  // a sum in f16 would stop at 512
  std::vector<double> values(size_t(n), 4096);
  for (size_t i = 1; i < values.size(); i += 2) values[i] = -4096;
  CHECK(matmul(tensor(values, {n}, DType::f16), one).item() == 0);
  Tensor weight = ones({1, 1}, DType::f16).set_requires_grad();
  linear(one.reshape({n, 1}), weight).backward(ones({n, 1}, DType::f16));
  CHECK(weight.grad().dtype() == DType::f32);
  CHECK(weight.grad().item() == 65536);  // does not fit f16
}

TEST_CASE("T1: mixed dtypes outside autocast are refused, naming op, operand, dtype and origin") {
  Tensor x = noise({2, 3}) * 1.0, weight = noise({4, 3}, DType::f16).set_requires_grad();
  x.set_requires_grad();
  weight.set_name("head.weight");
  Tensor hidden = mul(x, 2.0);
  std::string text = error_of([&] { linear(hidden, weight); });
  for (const char* part : {"[linear]", "x is f32(2, 3)", "the result of mul", "weight is f16(4, 3)",
                           "'head.weight'", "Autocast"}) {
    CAPTURE(text);
    CHECK(has(text, part));
  }
  amp::Autocast region(DType::f16);
  CHECK(linear(hidden, weight).dtype() == DType::f16);
}

TEST_CASE("linear adds the bias before the one rounding") {
  // 2048 + 1 is no f16: rounded first, each addition of 1 would be lost.
  Tensor y = linear(tensor({1, 1}, DType::f16).reshape({1, 2}),
                    tensor({2048, 1}, DType::f16).reshape({1, 2}), tensor({1}, DType::f16));
  CHECK(y.item() == 2050);
}

TEST_CASE("linear takes the gradient of the weight over all positions, also from a strided input") {
  Tensor base = noise({3, 2, 4}, DType::f64),
         x = base.transpose(0, 1);  // its leading axes are no single run
  Tensor dense = x.clone(), bias = zeros({5}, DType::f64).set_requires_grad();
  Tensor w1 = noise({5, 4}, DType::f64, 3).set_requires_grad(),
         w2 = w1.detach().clone().set_requires_grad();
  Tensor g = noise({2, 3, 5}, DType::f64, 4);
  linear(x, w1, bias).backward(g);
  linear(dense, w2).backward(g);
  CHECK(gradient_of(w1) == gradient_of(w2));
  std::vector<double> sums(5, 0.0);
  auto values = g.to_vector();
  for (size_t i = 0; i < values.size(); ++i) sums[i % 5] += values[i];
  check_close(gradient_of(bias), sums, 1e-12);
}

TEST_CASE("L5: the embedding's gradient is summed in fp32, the same for any number of threads") {
  const Index n = 100000;
  std::vector<double> at(static_cast<size_t>(n));
  for (size_t i = 0; i < at.size(); ++i) at[i] = double(i * 7 % 8);
  Tensor indices = tensor(at, {n}, DType::i32);
  auto gradient = [&](int count) {
    Threads scope(count);
    Tensor weight = ones({8, 2}, DType::f16).set_requires_grad();
    embedding(weight, indices).backward(full({n, 2}, 0.01, DType::f16));
    CHECK(weight.grad().dtype() == DType::f32);
    return gradient_of(weight);
  };
  auto one = gradient(1);
  for (double g : one) CHECK(1 + g == doctest::Approx(126).epsilon(1e-3));
  CHECK(gradient(3) == one);
}

TEST_CASE("an index out of range is named with its value, position and range") {
  Tensor at = tensor({0, 1, 2, 8}, DType::i64).reshape({2, 2});
  std::string text = error_of([&] { embedding(ones({8, 3}), at); });
  for (const char* part : {"[embedding]", "index 8", "position (1, 1)", "[0, 8)"})
    CHECK(has(text, part));
  CHECK(has(error_of([&] {
              embedding(ones({8, 3}), tensor({-1}, DType::i64));
            }),
            "index -1 at position (0)"));
  CHECK(has(error_of([&] {
              gather(ones({2, 3}), at, {.axis = 1});
            }),
            "index 8 at position (1, 1) is not in [0, 3)"));
  CHECK(has(error_of([&] {
              embedding(ones({8, 3}), tensor({1.0}));
            }),
            "must be an integer tensor"));
}

TEST_CASE("gather takes along an axis and its gradients add up where they meet") {
  Tensor x = tensor({1, 2, 3, 4}, DType::f16).reshape({2, 2});
  x.set_requires_grad();
  Tensor index = tensor({0, 0, 1, 0}, DType::i64).reshape({2, 2});
  Tensor y = gather(x, index, {.axis = 1});
  CHECK(y.to_vector() == std::vector<double>{1, 1, 4, 3});
  Tensor leaf = x.detach().clone().set_requires_grad();
  gather(leaf, zeros({2, 3000}, DType::i64), {.axis = 1}).backward(ones({2, 3000}, DType::f16));
  CHECK(gradient_of(leaf) ==
        std::vector<double>{3000, 0, 3000, 0});  // a sum in f16 would stop at 2048
  CHECK(gather(tensor({7, 8}, DType::i64), tensor({1}, DType::i64)).dtype() == DType::i64);
}

TEST_CASE("cat joins any number of tensors and hands each its part of the gradient") {
  Tensor a = tensor({1, 2}).reshape({1, 2}), b = tensor({3, 4, 5, 6}, DType::f16).reshape({2, 2}),
         c = tensor({7, 8}).reshape({1, 2});
  Tensor leaf = b.detach().clone().set_requires_grad();
  Tensor all = cat({a, leaf, c}, 0);
  CHECK(all.dtype() == DType::f32);
  CHECK(all.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
  all.backward(all.detach() * 10.0);
  CHECK(gradient_of(leaf) == std::vector<double>{30, 40, 50, 60});
  CHECK(cat({a, c}, -1).shape() == Shape{1, 4});
  std::string text = error_of([&] { cat({a, ones({1, 3})}, 0); });
  CHECK(has(text, "(1, 2)"));
  CHECK(has(text, "(1, 3)"));
  CHECK(has(error_of([] { cat(std::span<const Tensor>{}, 0); }), "at least one"));
}

TEST_CASE("D1: a loss whose targets are all ignored is 0, and so is its gradient") {
  Tensor logits = noise({3, 5}).set_requires_grad();
  CountedLoss counted = cross_entropy_counted(logits, full({3}, -100, DType::i64));
  CHECK(counted.loss.item() == 0);
  CHECK(counted.n_valid.item() == 0);
  CHECK(!counted.n_valid.requires_grad());
  counted.loss.backward();
  CHECK(gradient_of(logits) == std::vector<double>(15, 0.0));
}

TEST_CASE("D2: a target outside the classes is named with its value, position and range") {
  Tensor target = tensor({1, 2, 70001}, DType::i64);
  std::string text = error_of([&] { cross_entropy(zeros({3, 50257}), target); });
  for (const char* part : {"[cross_entropy]", "target 70001", "position (2)", "[0, 50257)"})
    CHECK(has(text, part));
  CHECK(has(error_of([] { cross_entropy(zeros({1, 4}), tensor({-1}, DType::i32)); }), "target -1"));
  CHECK(error_of([] {
          cross_entropy(zeros({1, 4}), tensor({-1}, DType::i32), {.ignore_index = -1});
        }).empty());
}

TEST_CASE("L8: the loss of 16-bit logits is computed and returned in fp32") {
  for (DType d : {DType::bf16, DType::f16}) {
    Tensor logits = noise({64, 33}, d) * 8.0, target = tensor({5}, DType::i64).expand({64});
    Tensor loss = cross_entropy(logits, target),
           exact = cross_entropy(logits.to(DType::f64), target);
    CHECK(loss.dtype() == DType::f32);
    CHECK(exact.dtype() == DType::f64);
    CHECK(loss.item() == doctest::Approx(exact.item()).epsilon(1e-6));
    amp::Autocast region(d);
    CHECK(cross_entropy(logits, target).item() == loss.item());
  }
}

TEST_CASE("cross_entropy divides by the targets that count and smooths labels") {
  Tensor logits = tensor({0, 0, 0, std::log(2.0), 0, 0}, DType::f64).reshape({2, 3});
  Tensor target = tensor({-100, 0}, DType::i64);
  const double nll = std::log(4.0) - std::log(2.0), mean = (nll + 2 * std::log(4.0)) / 3;
  CHECK(cross_entropy(logits, target).item() == doctest::Approx(nll));
  CHECK(cross_entropy(logits, target, {.label_smoothing = 0.1}).item() ==
        doctest::Approx(0.9 * nll + 0.1 * mean));
  CHECK(cross_entropy(logits, target, {.reduction = Reduction::sum}).item() ==
        doctest::Approx(nll));
  check_close(cross_entropy(logits, target, {.reduction = Reduction::none}).to_vector(), {0, nll},
              1e-12);
  Tensor leaf = logits.detach().clone().set_requires_grad();
  cross_entropy(leaf, target).backward();
  check_close(gradient_of(leaf), {0, 0, 0, -0.5, 0.25, 0.25}, 1e-12);
}

TEST_CASE("M3: a query that sees no key gives 0, and gradient 0, and leaves the others finite") {
  Tensor q = noise({1, 1, 4, 2}).set_requires_grad(),
         k = noise({1, 1, 4, 2}, DType::f32, 2).set_requires_grad();
  Tensor v = noise({1, 1, 4, 2}, DType::f32, 3).set_requires_grad();
  Tensor mask =
      tensor({1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0}, DType::boolean).reshape({4, 4});
  Tensor y = scaled_dot_product_attention(q, k, v, mask);
  y.backward(ones(y.shape()));
  auto out = y.to_vector(), dq = gradient_of(q), values = v.to_vector();
  for (size_t i = 0; i < 2; ++i) {
    CHECK(out[2 + i] == 0);
    CHECK(dq[2 + i] == 0);
    CHECK(out[6 + i] == doctest::Approx(values[2 + i]));  // one key: its value
  }
  CHECK(dq[0] != 0);
  for (const Tensor& x : {q, k, v})
    for (double g : gradient_of(x)) CHECK(std::isfinite(g));
  // Masks are taken together: with causal, query 0 sees key 0 alone.
  auto both = scaled_dot_product_attention(q, k, v, mask, {.causal = true}).to_vector();
  CHECK(both[0] == doctest::Approx(values[0]));
  CHECK(both[2] == 0);
}

TEST_CASE("M4: attention scores beyond f16 stay finite") {
  for (auto [value, width] : {std::pair{32.0, Index{64}}, std::pair{256.0, Index{128}}}) {
    Tensor q = full({1, 1, 3, width}, value, DType::f16), v = noise({1, 1, 3, width}, DType::f16);
    Tensor leaf = q.clone().set_requires_grad();
    Tensor y = scaled_dot_product_attention(leaf, q, v);
    CHECK(y.dtype() == DType::f16);
    auto out = y.to_vector(), values = v.to_vector();
    const auto w = size_t(width);
    for (size_t j = 0; j < w; ++j)  // equal scores: the mean of the values
      CHECK(out[j] ==
            doctest::Approx((values[j] + values[w + j] + values[2 * w + j]) / 3).epsilon(1e-3));
    y.backward(ones(y.shape(), DType::f16));
    for (double g : gradient_of(leaf)) CHECK(std::isfinite(g));
  }
}

TEST_CASE("attention reads heads as strided views and its bits do not depend on the threads") {
  auto heads = [](unsigned seed) { return noise({2, 33, 3, 8}, DType::f32, seed); };
  auto run = [&](int count, bool dense) {
    Threads scope(count);
    std::vector<double> all;
    Tensor leaf[3];
    for (unsigned i = 0; i < 3; ++i) {
      Tensor view = heads(i + 1).transpose(1, 2);
      leaf[i] = (dense ? view.contiguous() : view).detach().set_requires_grad();
    }
    Tensor y = scaled_dot_product_attention(leaf[0], leaf[1], leaf[2], Tensor(), {.causal = true});
    y.backward(noise(y.shape(), DType::f32, 9));
    for (const Tensor& x : {y, leaf[0].grad(), leaf[1].grad(), leaf[2].grad()})
      for (double v : x.to_vector()) all.push_back(v);
    return all;
  };
  auto one = run(1, false);
  CHECK(run(2, false) == one);
  CHECK(run(2, true) == one);
}

TEST_CASE("attention names the shapes that do not fit") {
  Tensor q = ones({2, 4, 8});
  CHECK(has(error_of([&] { scaled_dot_product_attention(q, ones({2, 4, 6}), q); }), "k (2, 4, 6)"));
  CHECK(has(error_of([&] {
              scaled_dot_product_attention(q, q, q, ones({3, 2, 4, 4}, DType::boolean));
            }),
            "(3, 2, 4, 4)"));
  CHECK(has(error_of([&] {
              scaled_dot_product_attention(q, q, q, ones({4, 4}));
            }),
            "must be bool"));
}
