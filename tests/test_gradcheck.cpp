#include <doctest/doctest.h>

#include "minim/autograd/gradcheck.h"
#include "minim/ops/call.h"
#include "minim/ops/functional.h"

using namespace minim;
using autograd::gradcheck;
using doctest::Contains;

namespace {

using Inputs = std::vector<Tensor>;

}  // namespace

TEST_CASE("gradcheck passes what is right, random and with several results") {
  const Tensor x = tensor({0.3, -0.7, 1.1, 2}, DType::f64).reshape({2, 2});
  const Tensor y = tensor({1.3, 0.7, -1.1, 0.2}, DType::f64).reshape({2, 2});
  const auto f = [](const Inputs& v) {
    return Inputs{matmul(v[0], exp(v[1])), dropout(v[0], {.p = 0.5}), v[0] > 0.0};
  };
  CHECK(gradcheck(f, {x, y}).empty());
  CHECK(gradcheck([](const Inputs& v) { return sum(v[0] * v[0]); }, {x}).empty());
  CHECK(x.to_vector() == std::vector<double>{0.3, -0.7, 1.1, 2});
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("gradcheck says which element of which gradient is wrong") {
  const auto f = [](const Inputs& v) { return v[0].select(0, 1).detach() * v[0]; };
  const auto findings = gradcheck(f, {tensor({1, 2, 3}, DType::f64)});
  REQUIRE(findings.size() == 1);  // the others' slopes are right
  CHECK(findings[0].starts_with("d input 0[1] of shape "));
  CHECK(findings[0].find("finite differences ") != std::string::npos);
  CHECK(gradcheck(f, {tensor({1, 2, 3}, DType::f64)}, {.atol = 100}).empty());
}

TEST_CASE("gradcheck refuses what says nothing") {
  CHECK_THROWS_WITH_AS(gradcheck([](const Inputs& v) { return v[0] * 1.0; }, {ones({2})}),
                       Contains("no input is f64"), Error);
  CHECK_THROWS_WITH_AS(
      gradcheck([](const Inputs& v) { return v[0].detach(); }, {ones({2}, DType::f64)}),
      Contains("no result requires gradients"), Error);
}
