// Axes that are not the last, and sizes at which tiles, parts of them and their ends all occur,
// give the bits of the same rows one after the other.
#include <cstring>

#include "minim/autograd/node.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

bool same_bytes(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.dtype() == y.dtype() && x.shape() == y.shape() &&
         std::memcmp(x.data(), y.data(), size_t(x.numel()) * size_of(x.dtype())) == 0;
}

struct Ran {
  Tensor y, slope;
};
template <class F>
Ran run(F f, Tensor x, const Tensor& g) {
  x = x.detach().set_requires_grad();
  Tensor y = f(x);
  y.backward(g);
  return {y.detach(), x.grad()};
}

}  // namespace

TEST_CASE("an op along an axis that is not the last has the bits of its rows moved to the end" *
          doctest::test_suite("host")) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
    for (const Shape& shape : {Shape{2, 37, 150}, Shape{3, 1100, 33}, Shape{1, 3, 700}}) {
      const Tensor x = noise(shape, dtype, 3), g = noise(shape, dtype, 5);
      auto check = [&](auto f) {
        for (int threads : {1, 2}) {
          Threads scope(threads);
          const Ran there = run([&](const Tensor& v) { return f(v, 1); }, x, g);
          const Ran last = run([&](const Tensor& v) { return f(v, 2); },
                               x.transpose(1, 2).contiguous(), g.transpose(1, 2).contiguous());
          INFO(name_of(dtype) << ", " << shape.numel() << " elements, " << threads << " threads");
          CHECK(same_bytes(there.y, last.y.transpose(1, 2)));
          CHECK(same_bytes(there.slope, last.slope.transpose(1, 2)));
        }
      };
      check([](const Tensor& v, Index dim) { return softmax(v, {.dim = dim}); });
      check([](const Tensor& v, Index dim) { return log_softmax(v, {.dim = dim}); });
      check([](const Tensor& v, Index dim) { return cumsum(v, {.dim = dim}); });
      const Tensor rows = x.transpose(1, 2).contiguous();
      CHECK(same_bytes(argmax(x, {.axis = 1}), argmax(rows, {.axis = 2})));
      CHECK(same_bytes(var(x, {.axes = {1}}), var(rows, {.axes = {2}})));
    }
}

TEST_CASE("batch_norm of columns has the bits of channels with their elements side by side" *
          doctest::test_suite("host")) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = noise({300, 70}, dtype, 7), g = noise({300, 70}, dtype, 9);
    const Tensor across = x.transpose(0, 1).contiguous().reshape({1, 70, 300});
    const Tensor g_across = g.transpose(0, 1).contiguous().reshape({1, 70, 300});
    auto norm = [](const Tensor& v) { return batch_norm(v); };
    const Ran columns = run(norm, x, g), channels = run(norm, across, g_across);
    auto back = [](const Tensor& v) { return v.reshape({70, 300}).transpose(0, 1); };
    CHECK(same_bytes(columns.y, back(channels.y)));
  }
}

TEST_CASE("indices along the first axis move what indices along the last one do" *
          doctest::test_suite("host")) {
  const Tensor x = noise({40, 1300}), src = noise({90, 1300}, DType::f32, 2);
  std::vector<double> at(90), all(size_t(90 * 1300));
  for (size_t i = 0; i < at.size(); ++i) at[i] = double(i * i % 40);
  for (size_t i = 0; i < all.size(); ++i) all[i] = double(i * 7919 % 40);
  const Tensor few = tensor(at, {90}, DType::i64), full = tensor(all, {90, 1300}, DType::i64);
  auto turned = [](const Tensor& t) { return t.transpose(0, 1).contiguous(); };
  CHECK(same_bytes(index_select(x, few), turned(index_select(turned(x), few, {.axis = 1}))));
  CHECK(same_bytes(gather(x, full), turned(gather(turned(x), turned(full), {.axis = 1}))));
  CHECK(same_bytes(scatter_add(x, full, src),
                   turned(scatter_add(turned(x), turned(full), turned(src), {.axis = 1}))));
  auto select = [&](Index axis) {
    return [&few, axis](const Tensor& v) { return index_select(v, few, {.axis = axis}); };
  };
  CHECK(same_bytes(run(select(0), x, src).slope,
                   turned(run(select(1), turned(x), turned(src)).slope)));
  CHECK(has(error_of([&] {
              index_select(x, tensor({1, 40}, DType::i64));
            }),
            "index 40 at position (1) is not in [0, 40)"));
}
