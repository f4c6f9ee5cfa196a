#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

Tensor index_of(std::initializer_list<double> values) { return tensor(values, DType::i64); }

}  // namespace

TEST_CASE("index_select takes slices in the order of the index and adds their gradients") {
  Tensor x = counting({3, 2}).set_requires_grad();
  Tensor y = index_select(x, index_of({2, 0, 2}));
  CHECK(y.to_vector() == std::vector<double>{4, 5, 0, 1, 4, 5});
  y.backward(counting({3, 2}, 1));
  CHECK(gradient_of(x) == std::vector<double>{3, 4, 0, 0, 6, 8});
  CHECK(index_select(x, index_of({1}), {.axis = -1}).to_vector() == std::vector<double>{1, 3, 5});
  CHECK(index_select(counting({3}, 0, DType::i64), index_of({2})).dtype() == DType::i64);
  CHECK(has(error_of([&] {
              index_select(x, index_of({0, 3}));
            }),
            "index 3 at position (1) is not in [0, 3)"));
  CHECK(has(error_of([&] { index_select(x, zeros({1, 1}, DType::i64)); }), "use gather"));
}

TEST_CASE("scatter_add adds where the index says") {
  Tensor x = shaped({10, 20, 30, 40, 50, 60}, {2, 3}, DType::f64).set_requires_grad();
  Tensor src = counting({2, 2}, 1).set_requires_grad();
  Tensor y = scatter_add(x, index_of({0, 0, 2, 1}).reshape({2, 2}), src, {.axis = 1});
  CHECK(y.to_vector() == std::vector<double>{13, 20, 30, 40, 54, 63});
  y.backward(counting({2, 3}, 1));
  CHECK(gradient_of(x) == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(gradient_of(src) == std::vector<double>{1, 1, 6, 5});
  Tensor rows = scatter_add(zeros({2, 2}), index_of({1, 0}).reshape({1, 2}), counting({3, 2}, 1));
  CHECK(rows.to_vector() == std::vector<double>{0, 2, 1, 0});
  CHECK(x.to_vector()[0] == 10);  // not in place
}

TEST_CASE("scatter_add sums 16 bits in fp32, the same for any number of threads") {
  const Index n = 3000;
  auto run = [&](int count, DType dtype, const Tensor& src) {
    Threads scope(count);
    return scatter_add(zeros({n, 2}, dtype), zeros({n, 2}, DType::i64), src).to_vector();
  };
  CHECK(run(1, DType::f16, ones({n, 2}, DType::f16))[0] == 3000);  // in f16 it would stop at 2048
  Tensor src = noise({n, 2});
  const auto one = run(1, DType::f32, src);
  CHECK(run(2, DType::f32, src) == one);
  CHECK(run(4, DType::f32, src) == one);
}

TEST_CASE("scatter_add names what does not fit") {
  auto text = [](const Shape& index, const Shape& src, double value) {
    return error_of([&] {
      scatter_add(zeros({2, 3}), full(index, value, DType::i64), ones(src), {.axis = 1});
    });
  };
  CHECK(has(text({2, 2}, {2, 2}, 3), "index 3 at position (0, 0) is not in [0, 3)"));
  CHECK(has(text({3, 2}, {3, 2}, 0), "index (3, 2) does not fit x (2, 3)"));
  CHECK(has(text({2, 2}, {2, 1}, 0), "does not fit src (2, 1)"));
  CHECK(text({2, 9}, {2, 9}, 0).empty());
}

TEST_CASE("stack makes a new axis and split takes one apart") {
  Tensor a = tensor({1, 2}, DType::f64).set_requires_grad(), b = tensor({3, 4}, DType::f64);
  CHECK(stack({a, b}).to_vector() == std::vector<double>{1, 2, 3, 4});
  Tensor columns = stack({a, b}, -1);
  CHECK(columns.to_vector() == std::vector<double>{1, 3, 2, 4});
  columns.backward(counting({2, 2}));
  CHECK(gradient_of(a) == std::vector<double>{0, 2});
  CHECK(has(error_of([&] { stack({a, ones({3})}); }), "(2) and (3)"));

  Tensor x = counting({2, 5}).set_requires_grad();
  std::vector<Tensor> parts = split(x, 2, 1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[1].to_vector() == std::vector<double>{2, 3, 7, 8});
  CHECK(parts[2].to_vector() == std::vector<double>{4, 9});
  parts[2].backward(ones({2, 1}, DType::f64));
  CHECK(gradient_of(x) == std::vector<double>{0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  CHECK(cat(split(x, {1, 4}, -1), 1).to_vector() == x.to_vector());
  CHECK(has(error_of([&] { split(x, {1, 3}, 1); }), "add up to 4"));
  CHECK(has(error_of([&] { split(x, {1, 5}, 1); }), "add up to 5"));
  CHECK(has(error_of([&] { split(x, 0, 1); }), "1 or more"));
}

TEST_CASE("rope turns the halves of a position by its angle") {
  Tensor x = shaped({1, 2, 3, 4}, {1, 4}, DType::f64);
  CHECK(rope(x).to_vector() == x.to_vector());  // position 0
  check_close(rope(x.expand({2, 4})).slice(0, 1, 2).to_vector(),
              {-1.9841106485555495, 1.959900667496664, 2.4623779024123156, 4.019799668334994},
              1e-14);
  check_close(rope(x, {.offset = 3}).to_vector(),
              {-1.413352520780047, 1.8791180666879925, -2.828857481741469, 4.058191135400942},
              1e-14);
}

TEST_CASE("rope from an offset on is the rest of rope, and products see distances alone") {
  Tensor x = noise({2, 9, 8});
  CHECK(rope(x).slice(1, 4, 9).to_vector() == rope(x.slice(1, 4, 9), {.offset = 4}).to_vector());
  auto product = [&](Index m, Index n) {
    Tensor q = noise({1, 8}, DType::f64, 5), k = noise({1, 8}, DType::f64, 6);
    return matmul(rope(q, {.offset = m}), rope(k, {.offset = n}).transpose(0, 1)).item();
  };
  CHECK(product(100003, 100001) == doctest::Approx(product(2, 0)).epsilon(1e-9));
  CHECK(product(7, 2) != doctest::Approx(product(2, 7)).epsilon(1e-3));
  CHECK(has(error_of([] { rope(ones({2, 3})); }), "even width"));
}
