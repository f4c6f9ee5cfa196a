// What a program can do wrong with a tensor, and what in-place ops do where memory is shared.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/gradients.h"
#include "minim/autograd/node.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"

using namespace minim;
using doctest::Contains;

namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor counting(const Shape& shape, DType d = DType::f32) {
  return arange(shape.numel()).to(d).reshape(shape);
}

}  // namespace

TEST_CASE("an in-place op refuses an operand that does not broadcast to the tensor") {
  Tensor x = ones({10});
  CHECK_THROWS_WITH_AS(x.copy_(ones({3}) * 7.0), Contains("(10) and (3)"), Error);
  CHECK_THROWS_WITH_AS(x.copy_(ones({2, 10})), Contains("(2, 10)"), Error);
  CHECK_THROWS_WITH_AS(x.mul_(ones({2, 10})), Contains("(2, 10)"), Error);
  CHECK_THROWS_WITH_AS(ones({2, 3}).copy_(ones({2, 1, 3})), Contains("(2, 1, 3)"), Error);
  CHECK_THROWS_WITH_AS(ones({1}).copy_(ones({0})), Contains("(0)"), Error);
  CHECK(x.to_vector() == Values(10, 1));
  CHECK(x.version() == 0);
  CHECK(ones({2, 3}).copy_(counting({3})).to_vector() == Values{0, 1, 2, 0, 1, 2});
  CHECK(ones({2, 3}).copy_(counting({2, 1})).to_vector() == Values{0, 0, 0, 1, 1, 1});
}

TEST_CASE("a strided view stays within its storage") {
  const Tensor x = counting({6});
  CHECK_THROWS_WITH_AS(as_strided(x, {7}, {1}, 0), Contains("(7)"), Error);
  CHECK_THROWS_WITH_AS(as_strided(x, {2}, {1}, 5), Contains("storage"), Error);
  CHECK_THROWS_WITH_AS(as_strided(x, {2}, {-1}, 0), Contains("storage"), Error);
  CHECK_THROWS_WITH_AS(as_strided(x, {2}, {1}, -1), Contains("storage"), Error);
  CHECK(as_strided(x, {3}, {-1}, 5).to_vector() == Values{5, 4, 3});
  CHECK(as_strided(x, {0}, {1}, 6).numel() == 0);
}

TEST_CASE("a number of elements that does not fit is an error that names the shape" *
          doctest::test_suite("host")) {
  constexpr Index big = Index{1} << 32;
  CHECK_THROWS_WITH_AS(ones({big << 30, 4}), Contains("(4611686018427387904, 4)"), Error);
  CHECK_THROWS_WITH_AS(zeros({0}).reshape({big, big}), Contains("(4294967296, 4294967296)"), Error);
  CHECK_THROWS_WITH_AS(ones({1, 1}).expand({2 * big, big / 2}), Contains("(8589934592, 21474"),
                       Error);
  CHECK_THROWS_WITH_AS(zeros({0}).reshape({big, -1, big}), Contains("4294967296"), Error);
  CHECK_THROWS_WITH_AS(zeros({big, big, 0}), Contains("(4294967296, 4294967296, 0)"), Error);
  CHECK_THROWS_WITH_AS(Shape({big, big, big, big}).numel(), Contains("elements"), Error);
  const Tensor wide = ones({1}).expand({2 * big}), tall = ones({1}).expand({big / 2});
  CHECK_THROWS_WITH_AS(wide + tall.unsqueeze(1), Contains("(2147483648, 8589934592)"), Error);
  const size_t in_use = memory::stats().total.current;
  CHECK_THROWS_WITH_AS(zeros({big << 26}, DType::f64),
                       Contains(("(" + std::to_string(in_use) + " bytes in use)").c_str()), Error);
}

TEST_CASE("every use of an undefined tensor is an error that says so") {
  const Tensor none;
  Tensor mine;
  auto refused = [](auto&& f) { CHECK_THROWS_WITH_AS(f(), Contains("undefined"), Error); };
  refused([&] { none.shape(); });
  refused([&] { none.strides(); });
  refused([&] { none.rank(); });
  refused([&] { none.numel(); });
  refused([&] { none.dtype(); });
  refused([&] { none.device(); });
  refused([&] { none.is_contiguous(); });
  refused([&] { none.typed(); });
  refused([&] { none.data(); });
  refused([&] { none.span<float>(); });
  refused([&] { none.item(); });
  refused([&] { none.to_vector(); });
  refused([&] { none.version(); });
  refused([&] { none.bump_version(); });
  refused([&] { none.name(); });
  refused([&] { none.set_name("x"); });
  refused([&] { none.to(DType::f16); });
  refused([&] { none.contiguous(); });
  refused([&] { none.clone(); });
  refused([&] { none.reshape({1}); });
  refused([&] { none.flatten(); });
  refused([&] { none.transpose(0, 1); });
  refused([&] { none.squeeze(0); });
  refused([&] { none.unsqueeze(0); });
  refused([&] { none.select(0, 0); });
  refused([&] { mine.fill_(1); });
  refused([&] { mine.copy_(ones({2})); });
  refused([&] { mine.add_(1); });
  refused([&] { ones({2}).copy_(none); });
  refused([&] { none.set_requires_grad(); });
  refused([&] { none.grad(); });
  refused([&] { none.set_grad(ones({})); });
  refused([&] { none.detach(); });
  refused([&] { none.backward(); });
  refused([&] { none.backward(ones({})); });
  refused([&] { (ones({2}).set_requires_grad() * 2.0).backward(none); });
  refused([&] { optim::SGD(std::vector<Tensor>{none}); });
  CHECK_THROWS_WITH_AS(ones({2}).add_(none), Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(none.permute({0}), Contains("missing"), Error);
  CHECK_THROWS_WITH_AS(none.slice(0, 0, 1), Contains("missing"), Error);
  CHECK_THROWS_WITH_AS(none.expand({1}), Contains("missing"), Error);
  CHECK_FALSE(none.requires_grad());
  CHECK(to_string(none) == "undefined");
}

TEST_CASE("a copy between overlapping views reads all that it needs before it writes") {
  Tensor x = counting({10});
  x.slice(0, 1, 10).copy_(x.slice(0, 0, 9));
  CHECK(x.to_vector() == Values{0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  Tensor y = counting({10});
  y.slice(0, 0, 9).copy_(y.slice(0, 1, 10));
  CHECK(y.to_vector() == Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 9});
  Tensor m = counting({3, 3});
  m.copy_(m.transpose(0, 1));
  CHECK(m.to_vector() == Values{0, 3, 6, 1, 4, 7, 2, 5, 8});
  Tensor row = counting({2, 3});
  row.copy_(row.select(1, 2).unsqueeze(1));
  CHECK(row.to_vector() == Values{2, 2, 2, 5, 5, 5});
  Tensor reversed = counting({4});
  copy_elements(as_strided(reversed, {4}, {-1}, 3), reversed);
  CHECK(reversed.to_vector() == Values{3, 2, 1, 0});
  Tensor same = counting({4});
  CHECK(same.copy_(same).to_vector() == Values{0, 1, 2, 3});
  x.add_(x.select(0, 9));
  CHECK(x.to_vector() == Values{8, 8, 9, 10, 11, 12, 13, 14, 15, 16});
}

TEST_CASE("a tensor whose elements share memory is not written to") {
  Tensor x = counting({3, 1});
  for (Tensor view : {x.expand({3, 4}), x.expand({2, 3, 1}), as_strided(x, {2, 2}, {1, 1}, 0)}) {
    CHECK_THROWS_WITH_AS(view.fill_(1), Contains("clone()"), Error);
    CHECK_THROWS_WITH_AS(view.add_(1.0), Contains("clone()"), Error);
    CHECK_THROWS_WITH_AS(view.copy_(ones({})), Contains("share"), Error);
  }
  CHECK(x.to_vector() == Values{0, 1, 2});
  x.expand({1, 3, 1}).fill_(7);  // stretched in name only
  CHECK(x.to_vector() == Values{7, 7, 7});
  Tensor m = counting({4, 6});
  m.transpose(0, 1).slice(0, 1, 6, 2).add_(100.0);
  CHECK(m.select(0, 0).to_vector() == Values{0, 101, 2, 103, 4, 105});
}

TEST_CASE("a gradient is a floating tensor of the parameter's shape") {
  const Tensor w = ones({2}).set_requires_grad();
  CHECK_THROWS_WITH_AS(w.set_grad(tensor({1, 2}, DType::i32)), Contains("i32"), Error);
  CHECK_THROWS_WITH_AS(w.set_grad(tensor({1, 0}, DType::boolean)), Contains("bool"), Error);
  CHECK_THROWS_WITH_AS(w.set_grad(ones({3})), Contains("(3)"), Error);
  CHECK_THROWS_WITH_AS(w.backward(tensor({1, 2}, DType::i64)), Contains("i64"), Error);
  CHECK_THROWS_WITH_AS((w * 2.0).backward(tensor({1, 2}, DType::i64)), Contains("i64"), Error);
  CHECK_FALSE(w.grad().defined());
  w.set_grad(tensor({1, 2}, DType::f16));
  CHECK(amp::dense_gradients(std::vector<Tensor>{w})[0].to_vector() == Values{1, 2});
}

TEST_CASE("clamp takes no NaN for a bound, and bounds that cross give the upper one") {
  const Tensor x = tensor({-2, 0, 2, kNaN}).set_requires_grad();
  CHECK_THROWS_WITH_AS(clamp(x, {kNaN, 1}), Contains("[clamp]"), Error);
  CHECK_THROWS_WITH_AS(clamp(x, {0, kNaN}), Contains("nan"), Error);
  const Tensor y = clamp(x.slice(0, 0, 3), {1, -1});
  CHECK(y.to_vector() == Values{-1, -1, -1});
  y.backward(ones({3}));
  CHECK(x.grad().slice(0, 0, 3).to_vector() == Values{0, 0, 0});
  CHECK(clamp(x, {-kInf, 1}).slice(0, 0, 3).to_vector() == Values{-2, 0, 1});
}

TEST_CASE("a NaN prints as nan whatever its sign") {
  const Tensor x = tensor({-kNaN, kNaN});
  CHECK(to_string(x).find("[nan, nan]") == 0);
  try {
    fail("a ", -kNaN, " and ", std::copysign(float(kNaN), -1.0f), " of ", -1.5);
  } catch (const Error& e) {
    CHECK(std::string(e.what()) == "a nan and nan of -1.5");
  }
}

TEST_CASE("what a masked key holds reaches neither the result of attention nor a gradient") {
  for (double poison : {kNaN, kInf}) {
    const Tensor q = counting({1, 3, 2}).set_requires_grad();
    auto run = [&](double hidden, AttentionKernel kernel) {
      q.set_grad({});
      Tensor k = counting({1, 4, 2}), v = counting({1, 4, 2});
      k.slice(1, 3, 4).fill_(hidden);
      v.slice(1, 3, 4).fill_(hidden);
      k.set_requires_grad(), v.set_requires_grad();
      const Tensor mask = tensor({1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0}, DType::boolean);
      const Tensor y =
          scaled_dot_product_attention(q, k, v, mask.reshape({3, 4}), {.kernel = kernel});
      y.backward(ones(y.shape()));
      return std::array{y.to_vector(), q.grad().to_vector(), k.grad().to_vector(),
                        v.grad().to_vector()};
    };
    const auto clean = run(0, AttentionKernel::reference);
    CHECK(run(poison, AttentionKernel::reference) == clean);
    CHECK(run(poison, AttentionKernel::fused) == clean);  // where there is NaN, the formula is used
  }
  const Tensor q = tensor({1, kNaN}).reshape({2, 1}).set_requires_grad();  // the second sees no key
  const Tensor k = ones({2, 1}).set_requires_grad(), v = ones({2, 1}).set_requires_grad();
  const Tensor mask = tensor({1, 1, 0, 0}, DType::boolean).reshape({2, 2});
  scaled_dot_product_attention(q, k, v, mask).backward(tensor({1, kInf}).reshape({2, 1}));
  CHECK(v.grad().to_vector() == Values{0.5, 0.5});
  CHECK(k.grad().to_vector() == Values{0, 0});
}

TEST_CASE("bce_with_logits is finite at infinite logits that are right, and so is its gradient") {
  const Tensor x = tensor({kInf, -kInf, kInf, -kInf, kNaN}).set_requires_grad();
  const Tensor y = bce_with_logits(x, tensor({1, 0, 0, 1, 1}), {.reduction = Reduction::none});
  const Values v = y.to_vector();
  CHECK(v[0] == 0);
  CHECK(v[1] == 0);
  CHECK(v[2] == kInf);
  CHECK(v[3] == kInf);
  CHECK(std::isnan(v[4]));
  y.backward(ones({5}));
  const Values d = x.grad().to_vector();
  CHECK(Values(d.begin(), d.begin() + 4) == Values{0, 0, 1, -1});
  CHECK(std::isnan(d[4]));
}
