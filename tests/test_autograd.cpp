#include <doctest/doctest.h>

#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/ops/functional.h"

using namespace minim;
using doctest::Contains;

namespace {

using Values = std::vector<double>;

Tensor leaf(std::initializer_list<double> values, DType d = DType::f32) {
  return tensor(values, d).set_requires_grad();
}
Tensor scalar_leaf(double v, DType d = DType::f32) { return full({}, v, d).set_requires_grad(); }

}  // namespace

TEST_CASE("E5: a value used many times collects every use") {
  const Tensor a = scalar_leaf(1), b = a + a, c = b * b + b;
  c.backward();
  CHECK(a.grad().item() == 10);
  const Tensor x = scalar_leaf(1), y = x + x;
  (y + y).backward();
  CHECK(x.grad().item() == 4);
}

TEST_CASE("gradients add up over backwards until they are cleared") {
  const Tensor x = scalar_leaf(3);
  for (int i = 0; i < 2; ++i) (x * x).backward();
  CHECK(x.grad().item() == 12);
  x.set_grad({});
  CHECK_FALSE(x.grad().defined());
  CHECK_THROWS_WITH_AS(x.set_grad(zeros({2})), Contains("does not fit"), Error);
}

TEST_CASE("a second backward is an error if something was saved, unless the graph was retained") {
  const Tensor x = scalar_leaf(3), y = x * x;
  y.backward();
  CHECK_THROWS_WITH_AS(y.backward(), Contains("retain_graph"), Error);
  const Tensor z = x * x;
  z.backward(true);
  z.backward();
  CHECK(x.grad().item() == 18);
  const Tensor plain = x + 1.0;
  plain.backward();
  plain.backward();  // nothing was saved
  CHECK(x.grad().item() == 20);
}

TEST_CASE("E6: a saved tensor that was changed in place is an error naming it and its versions") {
  Tensor x = leaf({1, 2}).set_name("x");
  const Tensor y = x * x;
  {
    NoGrad guard;
    x.add_(1.0);
  }
  CHECK_THROWS_WITH_AS(y.backward(ones({2})), Contains("'x'"), Error);
  CHECK_THROWS_WITH_AS(y.backward(ones({2})), Contains("version 1"), Error);
  const Tensor sum = x + 1.0;  // saves nothing
  NoGrad guard;
  x.slice(0, 0, 1).zero_();
  sum.backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{1, 1});
}

TEST_CASE("E7: a chain of a million adds goes backward and is freed without recursion") {
  const Tensor x = scalar_leaf(1);
  {
    Tensor y = x;
    for (int i = 0; i < 1000000; ++i) y = y + 1.0;
    CHECK(y.item() == 1000001);
    y.backward();
  }
  CHECK(x.grad().item() == 1);
}

TEST_CASE("integers cannot require gradients, and comparisons do not") {
  CHECK_THROWS_WITH_AS(arange(2).set_requires_grad(), Contains("only floating"), Error);
  CHECK_FALSE((leaf({1}) < leaf({2})).requires_grad());
}

TEST_CASE("E8: an op without backward refuses an operand that requires gradients") {
  OpRow row = Op::exp;
  row.differentiable = false;
  const Tensor x = leaf({1});
  const Tensor operands[] = {x}, detached[] = {x.detach()};
  CHECK_THROWS_WITH_AS(call(row, operands, {}), Contains("has no backward"), Error);
  CHECK_NOTHROW(call(row, detached, {}));
}

TEST_CASE("N1: where does not mix the branch not taken into the gradient") {
  const Tensor x = leaf({-1, -4});
  where(x > 0.0, sqrt(where(x > 0.0, x, 1.0)), x).backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{1, 1});
}

TEST_CASE("N1: where with a branch of infinite slope: the published cases have gradients 0 and 1") {
  const Tensor x = scalar_leaf(0);
  where(x == 0.0, 0.0, x * sqrt(x)).backward();
  CHECK(x.grad().item() == 0);
  const Tensor y = leaf({-1, -4});
  where(y > 0.0, sqrt(y), y).backward(ones({2}));
  CHECK(y.grad().to_vector() == Values{1, 1});
}

TEST_CASE("a cotangent of exactly 0 leaves no gradient, whatever the slope") {
  const Tensor x = leaf({0, -1, 4});
  sqrt(x).backward(tensor({0, 0, 1}));  // slopes inf, NaN, 1/4
  CHECK(x.grad().to_vector() == Values{0, 0, 0.25});
  x.set_grad({});
  sqrt(x).backward(tensor({1e-30, 1e-30, 1}));
  CHECK(std::isinf(x.grad().to_vector()[0]));
  CHECK(std::isnan(x.grad().to_vector()[1]));
  x.set_grad({});
  where(x == 0.0, 0.0, x * sqrt(x)).backward(tensor({1, 0, 1}));
  CHECK(x.grad().to_vector() == Values{0, 0, 3});
}

TEST_CASE("backward says what is missing") {
  CHECK_THROWS_WITH_AS(leaf({1, 2}).backward(), Contains("one element"), Error);
  CHECK_THROWS_WITH_AS(tensor({1}).backward(), Contains("does not require gradients"), Error);
  CHECK_THROWS_WITH_AS((leaf({1, 2}) * 2.0).backward(ones({3})), Contains("(3)"), Error);
}

TEST_CASE("nothing is recorded under NoGrad, and detach cuts the history") {
  const Tensor x = scalar_leaf(2);
  {
    NoGrad guard;
    CHECK_FALSE((x * x).requires_grad());
    GradScope on(true);
    CHECK((x * x).requires_grad());
  }
  CHECK((x * x).requires_grad());
  CHECK(x.detach().impl()->storage == x.impl()->storage);
  (x.detach() * x).backward();
  CHECK(x.grad().item() == 2);
}

TEST_CASE("broadcast operands get the sum of their gradients") {
  const Tensor row = leaf({1, 2, 3}), number = scalar_leaf(2);
  (row.expand({4, 3}) * number).backward(ones({4, 3}));
  CHECK(row.grad().to_vector() == Values{8, 8, 8});
  CHECK(number.grad().item() == 24);
}

TEST_CASE("a 16-bit weight cast once and used 300 times gets 300, not 256") {
  for (DType d : {DType::f16, DType::bf16}) {
    const Tensor w = scalar_leaf(1);
    const Tensor low = w.to(d);
    Tensor sum = full({}, 0.0);
    for (int i = 0; i < 300; ++i) sum = sum + low.to(DType::f32);
    sum.backward();
    CHECK(w.grad().item() == 300);
    CHECK(w.grad().dtype() == DType::f32);
  }
}

TEST_CASE("a 16-bit leaf gathers its gradient in fp32") {
  for (DType d : {DType::f16, DType::bf16}) {
    const Tensor w = scalar_leaf(1, d);
    for (int i = 0; i < 1024; ++i) (w * 1.0).backward();
    CHECK(w.grad().dtype() == DType::f32);
    CHECK(w.grad().item() == 1024);
  }
  const Tensor wide = scalar_leaf(1, DType::f64);
  (wide * 3.0).backward();
  CHECK(wide.grad().dtype() == DType::f64);
}

TEST_CASE(
    "backward from a leaf copies the cotangent, and a gradient is never an alias of another") {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4}), g = ones({2});
  x.backward(g);
  CHECK(x.grad().impl()->storage != g.impl()->storage);
  (x + y).backward(g);
  CHECK(x.grad().to_vector() == Values{2, 2});
  CHECK(y.grad().to_vector() == Values{1, 1});
  CHECK(x.grad().impl()->storage != y.grad().impl()->storage);
  CHECK(g.to_vector() == Values{1, 1});
}

TEST_CASE("gradients with different loss scales do not mix") {
  const Tensor x = scalar_leaf(1);
  (x * 2.0).backward();
  set_carried_scale(x.grad(), 1024);
  CHECK_THROWS_WITH_AS((x * 2.0).backward(), Contains("1024"), Error);
  CHECK(x.grad().item() == 2);
}

TEST_CASE("dump shows the calls with dtypes and shapes, one a line") {
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x.to(DType::f16)) + x;
  const std::string text = dump(y);
  CHECK(text ==
        "%0 f16(2) = to leaf1:f32\n"
        "%1 f16(2) = exp %0:f16\n"
        "%2 f32(2) = add %1:f16 leaf1:f32\n");
  CHECK(dump(x) == "(a leaf)\n");
}

TEST_CASE("dump_dot is the same as a graph of boxes and ellipses") {
  const Tensor x = leaf({1, 2});
  const ModuleScope scope("blocks.0");
  CHECK(dump_dot(exp(x.to(DType::f16)) + x) ==
        "digraph tape {\n  rankdir=BT;\n  node [shape=box];\n"
        "  n0 [label=\"to\\nf16(2)\\nblocks.0\"];\n"
        "  leaf1 [shape=ellipse, label=\"leaf1\\nf32(2)\"];\n"
        "  leaf1 -> n0 [label=\"f32(2)\"];\n"
        "  n1 [label=\"exp\\nf16(2)\\nblocks.0\"];\n"
        "  n0 -> n1 [label=\"f16(2)\"];\n"
        "  n2 [label=\"add\\nf32(2)\\nblocks.0\"];\n"
        "  n1 -> n2 [label=\"f16(2)\"];\n"
        "  leaf1 -> n2 [label=\"f32(2)\"];\n"
        "}\n");
  CHECK(dump_dot(x).find("leaf1 [shape=ellipse]") != std::string::npos);
}

TEST_CASE("memory is flat over 100 forwards without backward") {
  const Tensor x = leaf({1, 2, 3});
  const auto forward = [&] { return exp(x * 2.0) + tanh(x); };
  forward();
  const size_t before = memory::stats().total.current;
  for (int i = 0; i < 100; ++i) forward();
  CHECK(memory::stats().total.current == before);
}

TEST_CASE("backward frees what was saved while the result is still held") {
  const Tensor x = full({10000}, 1.0).set_requires_grad();
  const Tensor y = exp(exp(exp(x)) * 0.0);
  const size_t before = memory::stats().total.current;
  y.backward(ones({10000}));
  CHECK(memory::stats().total.current < before);
}

TEST_CASE("operands of a sum that share its gradient do not add to each other's") {
  const Tensor x = leaf({1, 2}), v = leaf({1, 2});
  const Tensor z = x * 1.0, y = v * 1.0, twice = z * 2.0;
  sum(twice + (z + y)).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{3, 3});
  CHECK(v.grad().to_vector() == std::vector<double>{1, 1});
}
