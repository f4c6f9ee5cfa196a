#include <doctest/doctest.h>

#include <sstream>

#include "minim/autograd/node.h"
#include "minim/core/op_args.h"
#include "minim/core/parallel.h"
#include "minim/core/sum.h"
#include "minim/ops/functional.h"

using namespace minim;
using doctest::Contains;

namespace {

using Values = std::vector<double>;

Tensor counting(const Shape& shape, DType d = DType::f32) {
  return arange(shape.numel()).to(d).reshape(shape);
}

TEST_CASE("parts of a tensor without elements lie anywhere") {
  const Tensor x = zeros({3, 0, 5});
  CHECK(x.select(0, 2).shape() == Shape{0, 5});
  CHECK(x.slice(0, 1, 3).shape() == Shape{2, 0, 5});
}

}  // namespace

TEST_CASE("views share the storage and its version") {
  Tensor x = counting({2, 3});
  for (const Tensor& view : {x.reshape({3, 2}), x.transpose(0, 1), x.slice(1, 0, 3, 2),
                             x.select(0, 1), x.expand({4, 2, 3}), x.unsqueeze(0), x.flatten()}) {
    CHECK(view.impl()->storage == x.impl()->storage);
    const uint64_t before = view.version();
    x.add_(1.0);
    CHECK(view.version() == before + 1);
  }
}

TEST_CASE("views show the right elements") {
  const Tensor x = counting({2, 3});
  CHECK(x.transpose(0, 1).to_vector() == Values{0, 3, 1, 4, 2, 5});
  CHECK(x.permute({1, 0}).shape() == Shape{3, 2});
  CHECK(x.slice(1, 0, 3, 2).to_vector() == Values{0, 2, 3, 5});
  CHECK(x.slice(1, -2, 3).to_vector() == Values{1, 2, 4, 5});
  CHECK(x.select(0, -1).to_vector() == Values{3, 4, 5});
  CHECK(x.select(1, 0).expand({2, -1}).to_vector() == Values{0, 3, 0, 3});
  CHECK(x.unsqueeze(-1).shape() == Shape{2, 3, 1});
  CHECK(x.unsqueeze(1).squeeze(1).shape() == x.shape());
  CHECK(x.squeeze(0).shape() == x.shape());  // not of size 1: left alone
  CHECK(counting({2, 3, 4}).flatten(1).shape() == Shape{2, 12});
  CHECK(counting({2, 3, 4}).reshape({-1, 4}).shape() == Shape{6, 4});
}

TEST_CASE("reshape copies only where the strides do not allow a view") {
  const Tensor x = counting({2, 3}), t = x.transpose(0, 1);
  CHECK(x.reshape({6}).impl()->storage == x.impl()->storage);
  CHECK(t.reshape({6}).impl()->storage != x.impl()->storage);
  CHECK(t.reshape({6}).to_vector() == Values{0, 3, 1, 4, 2, 5});
  CHECK(t.flatten().to_vector() == t.to_vector());
  CHECK(t.contiguous().is_contiguous());
  CHECK_FALSE(t.is_contiguous());
}

TEST_CASE("views that cannot be had say why") {
  const Tensor x = counting({2, 3});
  CHECK_THROWS_WITH_AS(x.reshape({4}), Contains("6 elements"), Error);
  CHECK_THROWS_WITH_AS(x.reshape({4, -1}), Contains("do not fill"), Error);
  CHECK_THROWS_WITH_AS(x.permute({0, 0}), Contains("twice"), Error);
  CHECK_THROWS_WITH_AS(x.permute({0}), Contains("does not name every axis"), Error);
  CHECK_THROWS_WITH_AS(x.transpose(0, 2), Contains("axis 2 is out of range"), Error);
  CHECK_THROWS_WITH_AS(x.select(0, 2), Contains("index 2 is out of range"), Error);
  CHECK_THROWS_WITH_AS(x.slice(0, 2, 1), Contains("no range"), Error);
  CHECK_THROWS_WITH_AS(x.slice(0, 0, 2, 0), Contains("no range"), Error);
  CHECK_THROWS_WITH_AS(x.expand({2, 4}), Contains("does not broadcast"), Error);
  CHECK_THROWS_WITH_AS(x.squeeze(5), Contains("out of range"), Error);
}

TEST_CASE("shapes that do not broadcast are named, both of them") {
  CHECK_THROWS_WITH_AS(counting({2, 3}) + counting({4}), Contains("(2, 3) and (4)"), Error);
  CHECK((counting({2, 1}) + counting({3})).to_vector() == Values{0, 1, 2, 1, 2, 3});
  CHECK_THROWS_AS(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST_CASE("tensors print their values, dtype and shape") {
  CHECK(to_string(counting({2, 2})) == "[[0, 1], [2, 3]] f32(2, 2)");
  CHECK(to_string(full({}, 1.5, DType::f16)) == "1.5 f16()");
  CHECK(to_string(arange(100)) == "[0, 1, 2, ..., 97, 98, 99] i64(100)");
  CHECK(to_string(counting({2, 3}).transpose(0, 1)) == "[[0, 3], [1, 4], [2, 5]] f32(3, 2)");
  CHECK(to_string(zeros({0})) == "[] f32(0)");
  CHECK(to_string(Tensor()) == "undefined");
  std::ostringstream out;
  out << tensor({1, 0}, DType::boolean);
  CHECK(out.str() == "[1, 0] bool(2)");
}

TEST_CASE("item, span and tensor() refuse what they cannot give" * doctest::test_suite("host")) {
  CHECK(counting({1, 1}).item() == 0);
  CHECK_THROWS_WITH_AS(counting({2}).item(), Contains("one element"), Error);
  CHECK_THROWS_WITH_AS(counting({2}).span<double>(), Contains("span of f64 asked of a f32"), Error);
  CHECK_THROWS_WITH_AS(counting({2, 2}).transpose(0, 1).span<float>(), Contains("contiguous()"),
                       Error);
  CHECK_THROWS_WITH_AS(tensor(Values{1, 2}, {3}), Contains("2 values do not fill"), Error);
  CHECK_THROWS_AS(empty({-2}), Error);
}

TEST_CASE("to converts, clone copies, to the same dtype is the tensor itself") {
  const Tensor x = counting({2, 2}), y = x.clone(), h = x.to(DType::f16);
  CHECK(y.impl()->storage != x.impl()->storage);
  CHECK(y.to_vector() == x.to_vector());
  CHECK(h.dtype() == DType::f16);
  CHECK(x.to(DType::f32).impl() == x.impl());
  CHECK(x.transpose(0, 1).clone().is_contiguous());
}

TEST_CASE("in-place ops keep the dtype, reach through views and count versions") {
  Tensor x = tensor({1, 2, 3, 4}, DType::f16);
  x.mul_(2.0).add_(tensor({0.5}, DType::f32)).sub_(0.5).div_(2.0);
  CHECK(x.dtype() == DType::f16);
  CHECK(x.to_vector() == Values{1, 2, 3, 4});
  CHECK(x.version() == 4);
  x.slice(0, 0, 4, 2).zero_();
  CHECK(x.to_vector() == Values{0, 2, 0, 4});
  CHECK(x.version() == 5);
  x.copy_(tensor({9}));
  CHECK(x.to_vector() == Values{9, 9, 9, 9});
  Tensor i = tensor({1, 2}, DType::i64);
  CHECK_THROWS_WITH_AS(i.add_(1.5), Contains("cannot store"), Error);
  CHECK_THROWS_WITH_AS(x.add_(counting({2, 4})), Contains("shape"), Error);
  CHECK(i.add_(1).to_vector() == Values{2, 3});
}

TEST_CASE(
    "a tensor that requires gradients is not changed in place, nor through a view, but under "
    "NoGrad") {
  Tensor w = counting({4});
  w.set_requires_grad().set_name("layer.weight");
  CHECK_THROWS_WITH_AS(w.add_(1.0), Contains("'layer.weight'"), Error);
  CHECK_THROWS_WITH_AS(w.slice(0, 0, 2).zero_(), Contains("in place"), Error);
  CHECK_THROWS_AS((w * 2.0).fill_(0), Error);
  CHECK(w.version() == 0);
  NoGrad guard;
  w.slice(0, 0, 2).fill_(7);
  CHECK(w.to_vector() == Values{7, 7, 2, 3});
  CHECK(w.version() == 1);
}

TEST_CASE("T3: a number of the language never widens a tensor") {
  for (DType d : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    CHECK((tensor({1}, d) * 2.5).dtype() == d);
    CHECK((3 + tensor({1}, d)).dtype() == d);
  }
  CHECK((tensor({1}, DType::f16) + tensor({1}, DType::bf16)).dtype() == DType::f32);
  CHECK((arange(2) * 2.5).dtype() == DType::f32);
  CHECK((arange(2) * 2).dtype() == DType::i64);
  CHECK((arange(3) / 2).to_vector() == Values{0, 0.5, 1});
}

TEST_CASE("M1: a number that does not fit the dtype is an error, infinity is not") {
  const Tensor scores = zeros({2}, DType::f16), mask = tensor({1, 0}, DType::boolean);
  CHECK_THROWS_WITH_AS(masked_fill(scores, mask, -1e9), Contains("does not fit f16"), Error);
  CHECK_THROWS_WITH_AS(scores + 1e5, Contains("65504"), Error);
  CHECK(masked_fill(scores, mask, -std::numeric_limits<double>::infinity()).to_vector()[1] == 0);
  CHECK(masked_fill(scores.to(DType::bf16), mask, -1e9).dtype() == DType::bf16);
}

TEST_CASE("the allocator counts bytes by kind, and they return to where they were") {
  const MemoryStats before = memory::stats();
  memory::reset_peak();
  {
    MemoryScope scope(MemoryKind::masters);
    const Tensor x = zeros({1000});
    const MemoryStats during = memory::stats();
    CHECK(during.by_kind[size_t(MemoryKind::masters)].current >=
          before.by_kind[size_t(MemoryKind::masters)].current + 4000);
    CHECK(during.total.current >= before.total.current + 4000);
    CHECK(x.impl()->storage->kind == MemoryKind::masters);
  }
  const MemoryStats after = memory::stats();
  CHECK(after.total.current == before.total.current);
  CHECK(after.total.peak >= before.total.current + 4000);
  for (size_t k = 0; k < kMemoryKinds; ++k)
    CHECK(after.by_kind[k].current == before.by_kind[k].current);
  memory::reset_peak();
  CHECK(memory::stats().total.peak == after.total.current);
}

TEST_CASE("R4: sums in fp32 are blocked: 32768 losses of 4.2 add up") {
  const std::vector<float> losses(32 * 1024, 4.2f);
  const float sum = sum16<float>(Index(losses.size()), [&](Index i) { return losses[size_t(i)]; });
  CHECK(double(sum) == doctest::Approx(32768 * double(4.2f)).epsilon(1e-6));
}

TEST_CASE("sum_to adds in an order that threads do not change" * doctest::test_suite("host")) {
  std::vector<float> x(300 * 1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7919 % 2003) - 1000) * 0.37f;
  std::vector<std::vector<double>> sums;
  const int before = threads();
  for (int n : {1, 2, 4}) {
    set_threads(n);
    Tensor rows = empty({1000});
    sum_to(x.data(), {300, 1000}, arg_of(rows));
    Tensor all = empty({});
    sum_to(x.data(), {300, 1000}, arg_of(all));
    sums.push_back(rows.to_vector());
    sums.back().push_back(all.item());
  }
  set_threads(before);
  CHECK(sums[0] == sums[1]);
  CHECK(sums[0] == sums[2]);
}

TEST_CASE("a device that is not there is refused by name, and the default one is a scope's" *
          doctest::test_suite("host")) {
  const Tensor x = ones({2});
  CHECK(x.to(kHost).shared() == x.shared());
  {
    const DeviceScope scope(kHost);
    CHECK(zeros({1}).device() == kHost);
  }
  CHECK_THROWS_WITH_AS(device_named("tpu"), "unknown device 'tpu'; known: cpu, cuda", Error);
  if (available(DeviceKind::cuda)) return;
  CHECK_THROWS_WITH_AS(empty({2}, DType::f32, {DeviceKind::cuda, 0}),
                       doctest::Contains("there is no CUDA device"), Error);
  CHECK_THROWS_WITH_AS(x.to(Device{DeviceKind::cuda, 0}),
                       doctest::Contains("there is no CUDA device"), Error);
  const DeviceScope scope({DeviceKind::cuda, 0});
  CHECK_THROWS_AS(zeros({2}), Error);
  CHECK((x * 2.0).to_vector() == std::vector<double>{2, 2});  // where x is
}
