#include "minim/amp/autocast.h"
#include "minim/ops/composite.h"
#include "minim/ops/einsum.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("einsum sums over what the result does not name") {
  Tensor x = counting({2, 3}), v = counting({3}, 1);
  auto of = [](std::string_view equation, std::initializer_list<Tensor> operands) {
    return einsum(equation, operands).to_vector();
  };
  CHECK(of("ij->ji", {x}) == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(of("ij->", {x}) == std::vector<double>{15});
  CHECK(of("ij->j", {x}) == std::vector<double>{3, 5, 7});
  CHECK(of("ij,j->i", {x, v}) == std::vector<double>{8, 26});
  CHECK(of("i,i->", {v, v}) == std::vector<double>{14});
  CHECK(of("i,i->i", {v, v}) == std::vector<double>{1, 4, 9});
  CHECK(of("i,j->ji", {tensor({1, 10}), v.to(DType::f32)}) ==
        std::vector<double>{1, 10, 2, 20, 3, 30});
  CHECK(of("ij,kj->", {x, x}) == std::vector<double>{9 + 25 + 49});
  CHECK(of("ij,i,j->", {x, tensor({1, 10}, DType::f64), v}) == std::vector<double>{268});
  CHECK(of("ba", {x}) == std::vector<double>{0, 3, 1, 4, 2, 5});  // a before b
  CHECK(of("ij, jk", {x, counting({3, 1}, 1)}) == std::vector<double>{8, 26});
}

TEST_CASE("einsum takes diagonals") {
  Tensor x = counting({3, 3}), cube = counting({2, 2, 2});
  CHECK(einsum("ii->", {x}).item() == 12);
  CHECK(einsum("ii->i", {x}).to_vector() == std::vector<double>{0, 4, 8});
  CHECK(einsum("ii", {x}).item() == 12);
  CHECK(einsum("iii->i", {cube}).to_vector() == std::vector<double>{0, 7});
  CHECK(einsum("iji->j", {cube}).to_vector() == std::vector<double>{0 + 5, 2 + 7});
}

TEST_CASE("einsum of two operands is the matmul of their permutations") {
  Tensor a = noise({2, 3, 4}), b = noise({2, 4, 5}, DType::f32, 2),
         c = noise({5, 3}, DType::f32, 3);
  CHECK(einsum("bij,bjk->bik", {a, b}).to_vector() == matmul(a, b).to_vector());
  Tensor product = einsum("bij,kl->jlbki", {a, c});
  CHECK(product.shape() == Shape{4, 3, 2, 5, 3});
  check_close({product.select(0, 1).select(0, 2).select(0, 1).select(0, 4).select(0, 0).item()},
              {double(a.to_vector()[12 + 1]) * c.to_vector()[4 * 3 + 2]}, 1e-6);
  check_close(einsum("bij,bjk,ki->b", {a, b, c}).to_vector(),
              sum(matmul(a, b) * c.transpose(0, 1), {.axes = {1, 2}}).to_vector(), 1e-5);
}

TEST_CASE("einsum lets dots stand for the other axes and broadcasts axes of size 1") {
  Tensor a = noise({2, 1, 3, 4}), b = noise({5, 4, 2}, DType::f32, 2);
  Tensor y = einsum("...ij,...jk->...ik", {a, b});
  CHECK(y.shape() == Shape{2, 5, 3, 2});
  check_close(y.to_vector(), matmul(a, b).to_vector(), 1e-6);
  CHECK(einsum("...ij->...ji", {a}).shape() == Shape{2, 1, 4, 3});
  CHECK(einsum("i...,i->...", {a, ones({2})}).shape() == Shape{1, 3, 4});
  CHECK(einsum("ij,jk->ik", {ones({2, 1}), counting({3, 2}, 0, DType::f32)}).to_vector() ==
        std::vector<double>{6, 9, 6, 9});
}

TEST_CASE("einsum has gradients and follows autocast as matmul does") {
  Tensor x = noise({2, 3, 3}, DType::f64).set_requires_grad(),
         y = noise({3, 4}, DType::f64, 2).set_requires_grad();
  Tensor g = noise({4, 2}, DType::f64, 3);
  einsum("bii,ik->kb", {x, y}).backward(g);
  const auto xs = x.to_vector(), ys = y.to_vector(), gs = g.to_vector();
  std::vector<double> dx(18), dy(12);
  for (size_t b = 0; b < 2; ++b)
    for (size_t i = 0; i < 3; ++i)
      for (size_t k = 0; k < 4; ++k) {
        dx[b * 9 + i * 4] += gs[k * 2 + b] * ys[i * 4 + k];
        dy[i * 4 + k] += gs[k * 2 + b] * xs[b * 9 + i * 4];
      }
  check_close(gradient_of(x), dx, 1e-12);
  check_close(gradient_of(y), dy, 1e-12);
  amp::Autocast region(DType::bf16);
  CHECK(einsum("ij,jk->ik", {ones({2, 3}), ones({3, 2})}).dtype() == DType::bf16);
}

TEST_CASE("einsum says where an equation is wrong") {
  auto text = [](std::string_view equation, std::initializer_list<Tensor> operands) {
    return error_of([&] { einsum(equation, operands); });
  };
  Tensor x = ones({2, 3});
  CHECK(has(text("ij,jk->ik", {x, x}), "'ij,jk->ik' at position 3: the axis is 2 in operand 1"));
  CHECK(has(text("i?->i", {x}), "at position 1: '?' cannot stand here"));
  CHECK(has(text("ij,jkl->ik", {x, x}), "at position 3: operand 1 has 3 subscripts, but 2 axes"));
  CHECK(has(text("i->i", {x}), "at position 0: operand 0 has 1 subscripts, but 2 axes"));
  CHECK(has(text("ij->ik", {x}), "at position 5: 'k' is in no operand"));
  CHECK(has(text("ij->ii", {x}), "at position 5: 'i' is in the result twice"));
  CHECK(has(text("ij->i->j", {x}), "at position 5: '-'"));
  CHECK(has(text("......", {x}), "at position 3: a second '...'"));
  CHECK(has(text("ij,jk", {x}), "has 2 operands, 1 were given"));
}
