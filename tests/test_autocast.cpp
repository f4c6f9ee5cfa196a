#include <doctest/doctest.h>

#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/ops/functional.h"
#include "minim/ops/row.h"

using namespace minim;
using namespace minim::amp;
using doctest::Contains;

namespace {

Tensor parameter(const Shape& shape, double v = 0.5) { return full(shape, v).set_requires_grad(); }

size_t cast_bytes() { return memory::stats().by_kind[size_t(MemoryKind::casts)].current; }

}  // namespace

TEST_CASE("matrix products run in 16 bits, range-hungry ops in fp32, joins by promotion") {
  for (DType low : {DType::f16, DType::bf16}) {
    Autocast on(low);
    const Tensor a = full({2, 2}, 0.5), h = matmul(a, a);
    CHECK(h.dtype() == low);
    CHECK(exp(h).dtype() == DType::f32);
    CHECK(gelu(h).dtype() == low);
    CHECK((h + a).dtype() == DType::f32);
    CHECK((h + h).dtype() == low);
    CHECK((h * 2.0).dtype() == low);
  }
}

TEST_CASE("f64 and integers are left alone") {
  Autocast on(DType::f16);
  const Tensor d = full({2, 2}, 0.5, DType::f64), i = arange(2);
  CHECK(matmul(d, d).dtype() == DType::f64);
  CHECK(exp(d).dtype() == DType::f64);
  CHECK((i + i).dtype() == DType::i64);
}

TEST_CASE("T1: matmul outside autocast wants one dtype and names who made what") {
  const Tensor x = full({2, 2}, 1.0), w = full({2, 2}, 1.0, DType::f16).set_name("head.weight");
  CHECK_THROWS_WITH_AS(matmul(x, w), Contains("'head.weight'"), Error);
  CHECK_THROWS_WITH_AS(matmul(x, w), Contains("f16"), Error);
  Autocast on(DType::f16);
  CHECK(matmul(x, w).dtype() == DType::f16);
}

TEST_CASE("regions nest: off means off and the end restores what was") {
  const Tensor a = full({2, 2}, 0.5);
  CHECK(Autocast::current() == nullptr);
  {
    Autocast outer(DType::f16);
    CHECK(matmul(a, a).dtype() == DType::f16);
    {
      Autocast inner(DType::bf16);
      CHECK(matmul(a, a).dtype() == DType::bf16);
      Autocast off(Autocast::off);
      CHECK(Autocast::current() == nullptr);
      CHECK(matmul(a, a).dtype() == DType::f32);
      Autocast again(DType::f16);
      CHECK(matmul(a, a).dtype() == DType::f16);
    }
    CHECK(matmul(a, a).dtype() == DType::f16);
    Autocast none(DType::f32);
    CHECK(matmul(a, a).dtype() == DType::f32);
  }
  CHECK(matmul(a, a).dtype() == DType::f32);
}

TEST_CASE("an exception leaves no region behind") {
  try {
    Autocast on(DType::f16);
    matmul(full({2, 2}, 1.0), full({3, 2}, 1.0));
  } catch (const Error&) {
  }
  CHECK(Autocast::current() == nullptr);
  CHECK(cast_bytes() == 0);
}

TEST_CASE("only f16, bf16 and f32 make a region, and policies have names") {
  CHECK_THROWS_WITH_AS(Autocast(DType::f64), Contains("expected f16 or bf16"), Error);
  CHECK_THROWS_WITH_AS(Autocast(DType::i32), Contains("i32"), Error);
  CHECK(Autocast::current() == nullptr);
  CHECK(policy_named("lean") == Policy::lean);
  CHECK_THROWS_WITH_AS(policy_named("fast"), Contains("known: torch, lean"), Error);
}

TEST_CASE("a row may be overridden for one scope") {
  const Tensor h = full({1}, 12.0, DType::f16);
  {
    Autocast on(DType::f16);
    CHECK(std::isfinite(exp(h).item()));
  }
  {
    Autocast on(DType::f16, {{Op::exp, Cast::keep}});
    CHECK(exp(h).dtype() == DType::f16);
    CHECK(std::isinf(exp(h).item()));
  }
  {
    Autocast on(DType::f16, {{Op::exp, Cast::banned}});
    CHECK_THROWS_WITH_AS(exp(h), Contains("[exp] is banned by an override"), Error);
  }
  Autocast on(DType::f16);
  CHECK(exp(h).dtype() == DType::f32);
}

TEST_CASE("an fp32 head for one scope: products take fp32 as an override in any mix of dtypes") {
  const Tensor w = parameter({4, 4}, 1.0 / 3), bias = parameter({4}, .1);
  const Tensor wide = full({2, 4}, 1.0 / 7).set_requires_grad();
  Tensor head, before;
  {
    Autocast on(DType::f16);
    const Tensor x = linear(wide, w);
    REQUIRE(x.dtype() == DType::f16);
    before = x.detach();
    Autocast exact(DType::f16, {{Op::linear, Cast::fp32}, {Op::matmul, Cast::fp32}});
    head = linear(x, w, bias);  // w is cast to 16 bits by the first and is itself here
    CHECK(matmul(x, w).dtype() == DType::f32);
    CHECK(matmul(x, x.transpose(0, 1)).dtype() == DType::f32);
  }
  CHECK(head.dtype() == DType::f32);
  CHECK(head.to_vector() == linear(before.to(DType::f32), w, bias).to_vector());
  sum(head).backward();
  for (const Tensor& p : {w, bias, wide}) CHECK(p.grad().dtype() == DType::f32);
}

TEST_CASE("an override holds in the regions inside, unless they override the row again") {
  const Tensor h = full({2, 2}, 0.5, DType::f16);
  Autocast outer(DType::f16, {{Op::matmul, Cast::fp32}});
  {
    Autocast inner(DType::bf16, {{Op::exp, Cast::keep}}, Policy::lean);
    CHECK(matmul(h, h).dtype() == DType::f32);
    CHECK(exp(h).dtype() == DType::f16);
    Autocast off(Autocast::off);
    CHECK(matmul(h, h).dtype() == DType::f16);
    Autocast again(DType::bf16);
    CHECK(matmul(h, h).dtype() == DType::f32);
    Autocast back(DType::bf16, {{Op::matmul, Cast::lower}});
    CHECK(matmul(h, h).dtype() == DType::bf16);
  }
  CHECK(exp(h).dtype() == DType::f32);
  CHECK(matmul(h, h).dtype() == DType::f32);
}

TEST_CASE("an override that no call could follow is refused where it is made") {
  for (Cast cast : {Cast::lower, Cast::fp32, Cast::promote, Cast::banned})
    CHECK_THROWS_WITH_AS(Autocast(DType::f16, {{Op::to, cast}}), Contains("'to'"), Error);
  CHECK_NOTHROW(Autocast(DType::f16, {{Op::to, Cast::keep}}));
  CHECK_THROWS_WITH_AS(Autocast(DType::f16, {{Op::exp, Cast::keep}, {Op::exp, Cast::fp32}}),
                       Contains("two overrides of 'exp'"), Error);
  CHECK(Autocast::current() == nullptr);
  const Tensor a = full({2, 2}, 0.5), d = full({2, 2}, 0.5, DType::f64);
  Autocast on(DType::f16, {{Op::matmul, Cast::keep}});
  for (const Tensor& other : {a.to(DType::f16), d})
    CHECK_THROWS_WITH_AS(matmul(a, other), Contains("convert one with .to(), as the region leaves"),
                         Error);
}

TEST_CASE("a weight is cast once per region, and the copy is dropped at its end") {
  const Tensor w = parameter({8, 8}), x = full({8, 8}, 1.0);
  const size_t before = cast_bytes();
  {
    Autocast on(DType::f16);
    NoGrad guard;
    matmul(x, w);
    const size_t once = cast_bytes();
    CHECK(once > before);
    for (int i = 0; i < 10; ++i) matmul(x, w);
    CHECK(cast_bytes() == once);
    {
      Autocast inner(DType::f16);
      matmul(x, w);
    }
    CHECK(cast_bytes() == once);
  }
  CHECK(cast_bytes() == before);
}

TEST_CASE("A1: a cast made without gradients is not used where they are wanted") {
  const Tensor w = parameter({2, 2}), x = full({2, 2}, 1.0);
  Autocast on(DType::bf16);
  {
    NoGrad guard;
    CHECK_FALSE(matmul(x, w).requires_grad());
  }
  matmul(x, w).backward(full({2, 2}, 1.0, DType::bf16));
  REQUIRE(w.grad().defined());
  CHECK(w.grad().dtype() == DType::f32);
  CHECK(w.grad().to_vector() == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("A2: every forward in one region sees the weights as they are now") {
  Tensor w = parameter({1, 1}, 1);
  const Tensor x = full({1, 1}, 1.0);
  Autocast on(DType::f16);
  const size_t start = cast_bytes();
  size_t after_first = 0;
  for (int step = 1; step <= 3; ++step) {
    CHECK(matmul(x, w).item() == step);
    NoGrad guard;
    w.add_(1.0);
    if (step == 1) after_first = cast_bytes() - start;
  }
  matmul(x, w);
  CHECK(cast_bytes() - start <= after_first);  // stale copies are not kept
}

TEST_CASE("a weight used 300 times through its cached copy gets 300, not 256") {
  for (DType low : {DType::f16, DType::bf16}) {
    const Tensor w = parameter({1, 1}, 1), x = full({1, 1}, 1.0);
    Tensor sum = full({1, 1}, 0.0);
    {
      Autocast on(low);
      for (int i = 0; i < 300; ++i) sum = sum + matmul(x, w);
    }
    sum.backward();
    CHECK(w.grad().dtype() == DType::f32);
    CHECK(w.grad().item() == 300);
  }
}

TEST_CASE("backward runs in the dtypes of the forward, whatever region it is in") {
  const auto gradient = [](bool inside) {
    const Tensor w = full({2, 2}, 1.0 / 3).set_requires_grad(),
                 x = full({2, 2}, 0.7).set_requires_grad();
    Tensor y;
    {
      Autocast on(DType::bf16);
      y = exp(matmul(x, w));
      if (inside) y.backward(full({2, 2}, 0.1));
    }
    Autocast other(DType::f16);
    if (!inside) y.backward(full({2, 2}, 0.1));
    std::vector<double> both = w.grad().to_vector();
    for (double v : x.grad().to_vector()) both.push_back(v);
    return both;
  };
  CHECK(gradient(true) == gradient(false));
}

namespace {

struct Doubled : op::Unary<Doubled> {
  static constexpr Spec spec{.operands = {{"x"}}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return 2 * x;
  }
  template <class A>
  MINIM_HD static A slope(A, A) {
    return 2;
  }
};

}  // namespace

TEST_CASE("T4: an op of the user's own follows its row, forward inside and backward outside") {
  static constexpr OpRow row = make_row<Doubled>("doubled", Cast::lower, Cast::lower, 0, "a test");
  const Tensor x = parameter({2}, 1.0 / 3);
  const Tensor operands[] = {x};
  Tensor y;
  {
    Autocast on(DType::bf16);
    y = call(row, operands, {})[0];
  }
  CHECK(y.dtype() == DType::bf16);
  y.backward(full({2}, 0.1, DType::bf16));
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(x.grad().to_vector()[0] == doctest::Approx(0.2).epsilon(0.01));
}

TEST_CASE("T5: a region needs a dtype and cannot be copied") {
  static_assert(!std::is_default_constructible_v<Autocast>);
  static_assert(!std::is_copy_constructible_v<Autocast>);
}
