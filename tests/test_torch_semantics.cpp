// What PyTorch's tests say of promotion and gradients and no other test here does (docs/parity.md).
#include <doctest/doctest.h>

#include "minim/autograd/node.h"
#include "minim/ops/functional.h"

using namespace minim;
using Values = std::vector<double>;

TEST_CASE("operands of two dtypes get gradients of their own dtypes") {
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = tensor({2, 3.0001}).set_requires_grad(),
                 y = tensor({4, 5}, d).set_requires_grad();
    const Tensor z = x * y - y / x;
    CHECK(z.dtype() == promote_types(DType::f32, d));
    z.backward(ones({2}, z.dtype()));
    CHECK(x.grad().dtype() == DType::f32);
    CHECK(x.grad().to_vector()[0] == 5);
    CHECK(y.grad().to_vector()[1] == doctest::Approx(3.0001 - 1 / 3.0001).epsilon(1e-6));
    CHECK(y.grad().dtype() == (is_half(d) ? DType::f32 : d));
  }
}

TEST_CASE("the gradient of a power by its base is 0 where the exponent is 0") {
  const Tensor x = zeros({2}).set_requires_grad();
  pow(x, tensor({0, 2})).backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{0, 0});
}

TEST_CASE("what was broadcast to no elements has gradient 0") {
  const Tensor x = ones({4, 1}).set_requires_grad();
  const Tensor y = zeros({4, 0}).set_requires_grad();
  (x + y).backward(zeros({4, 0}));
  CHECK(x.grad().to_vector() == Values(4, 0));
  CHECK(y.grad().shape() == Shape{4, 0});
}

TEST_CASE("comparisons promote, also of large integers, and leave their operands alone") {
  const Tensor x = tensor({1ll << 33, (1ll << 33) + 1}, DType::i64), y = full({}, 1ll << 33);
  CHECK((x == y).dtype() == DType::boolean);
  CHECK((x <= y).to_vector()[0] == 1);
  CHECK(x.dtype() == DType::i64);
  CHECK((x > tensor({1ll << 33}, DType::i64)).to_vector() == Values{0, 1});
  CHECK((tensor({1}, DType::u8) < tensor({1.5}, DType::bf16)).to_vector() == Values{1});
}

TEST_CASE("an integer is not changed in place by what is no integer") {
  Tensor x = arange(3);
  CHECK_THROWS_AS(x.add_(1.5), Error);
  CHECK_THROWS_AS(x.div_(2), Error);
  CHECK_THROWS_AS(x.mul_(ones({3})), Error);
  x.add_(arange(3).to(DType::i32));
  CHECK(x.to_vector() == Values{0, 2, 4});
}

TEST_CASE("a 16-bit tensor is compared with a number as its dtype rounds it") {
  for (DType d : {DType::f16, DType::bf16})
    for (const Tensor& number : {Tensor(0.1), full({}, 0.1), full({}, 0.1, DType::f64)}) {
      CAPTURE(std::string(name_of(d)));
      const Tensor x = full({1}, 0.1, d);
      CHECK((x == number).item() == 1);
      CHECK((x < number).item() == 0);
      CHECK((number >= x).item() == 1);
      CHECK((x.to(DType::f32) == full({1}, 0.1)).item() == 0);
      CHECK((x == full({1}, 0.1)).item() == 0);
    }
}
