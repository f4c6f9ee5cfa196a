#include <doctest/doctest.h>

#include "minim/autograd/checkpoint.h"
#include "minim/autograd/node.h"
#include "minim/models/attention.h"
#include "minim/models/conv_layers.h"
#include "minim/models/init.h"
#include "minim/ops/composite.h"
#include "minim/tests/messages.h"

using namespace minim;
using test::check_says;
using test::error_of;

namespace {

using Values = std::vector<double>;
using OfOne = std::function<Tensor(const Tensor&)>;

Tensor leaf(std::initializer_list<double> values, DType d = DType::f32) {
  return tensor(values, d).set_requires_grad();
}

struct InPlace {
  const char* name;
  std::function<void(Tensor&, const Tensor&)> call;
};
const InPlace kInPlace[] = {
    {"add_", [](Tensor& x, const Tensor& y) { x.add_(y); }},
    {"sub_", [](Tensor& x, const Tensor& y) { x.sub_(y); }},
    {"mul_", [](Tensor& x, const Tensor& y) { x.mul_(y); }},
    {"div_", [](Tensor& x, const Tensor& y) { x.div_(y); }},
    {"copy_", [](Tensor& x, const Tensor& y) { x.copy_(y); }},
};

}  // namespace

TEST_CASE("an in-place write of what requires gradients is refused, and says what to do instead") {
  const Tensor w = leaf({3});
  w.set_name("head.weight");
  for (const InPlace& write : kInPlace) {
    CAPTURE(write.name);
    Tensor buf = ones({1});
    const std::string e = error_of([&] { write.call(buf, w); });
    check_says(
        e, {std::string("[") + write.name + "]", "'head.weight'", "f32(1)", "detach()", "NoGrad"});
    check_says(error_of([&] { write.call(buf, exp(w)); }), {"the result of exp"});
    CHECK(buf.item() == 1);
    CHECK(buf.version() == 0);
    write.call(buf, w.detach());
    {
      NoGrad off;
      write.call(buf, w);
    }
    CHECK(buf.version() == 2);
    sum(buf + w).backward();
    CHECK(w.grad().item() == 1);  // as of a constant
    w.set_grad({});
  }
}

TEST_CASE("a copy of what was recorded into a view is refused, of whatever layout the view is") {
  const Tensor w = leaf({1, 2, 3, 4, 5, 6}), y = (w * 2.0).reshape({2, 3});
  Tensor buf = zeros({3, 2});
  check_says(error_of([&] { buf.transpose(0, 1).copy_(y); }), {"[copy_]"});
  check_says(error_of([&] { buf.slice(0, 1, 2).copy_(y.select(1, 0)); }),
             {"the result of reshape"});
  check_says(error_of([&] { buf.select(0, 0).add_(y.select(1, 0)); }), {"[add_]"});
  check_says(error_of([&] { y.detach().copy_(y); }), {"[copy_]"});
  CHECK(buf.to_vector() == Values(6, 0));
}

TEST_CASE("running statistics that require gradients are refused") {
  Tensor mean = zeros({2}), var = ones({2});
  const Tensor x = tensor({1, 2, 3, 5}).reshape({2, 2});
  mean.set_requires_grad();
  check_says(error_of([&] { batch_norm_update(x, mean, var); }),
             {"[batch_norm_update] running_mean"});
  mean.set_requires_grad(false);
  var.set_requires_grad();
  check_says(error_of([&] { batch_norm_update(x, mean, var); }),
             {"[batch_norm_update] running_var"});
  CHECK(mean.to_vector() == Values{0, 0});
}

TEST_CASE("a cache of keys and values takes nothing that requires gradients") {
  const models::MultiHeadAttention attention({.width = 4, .heads = 2, .capacity = 3});
  const Tensor x = ones({1, 1, 4});
  models::LayerCache cache;
  check_says(error_of([&] { attention(x, &cache); }), {"NoGrad"});
  CHECK(cache.length == 0);
  NoGrad off;
  attention(x, &cache);
  CHECK(cache.length == 1);
}

TEST_CASE("initialisers fill parameters, and parts of them under NoGrad, but no recorded result") {
  const Tensor w = zeros({2, 3}).set_requires_grad();
  models::init::normal(w);
  CHECK(w.to_vector() != Values(6, 0));
  check_says(error_of([&] { models::init::normal(w * 2.0); }), {"[init]", "the result of mul"});
  check_says(error_of([&] { models::init::normal(w.slice(0, 0, 1)); }), {"NoGrad"});
  NoGrad off;
  models::init::uniform(w.slice(0, 0, 1), 7, 8);
  CHECK(w.to_vector()[0] >= 7);
}

TEST_CASE("a recomputed forward moves running statistics once") {
  const auto run = [](int depth) {
    models::BatchNorm2d norm(2);
    const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 9}).reshape({2, 2, 2, 1}).set_requires_grad();
    const auto f = [&](const Tensor& h) { return norm(h) * 2.0; };
    const auto g = [&](const Tensor& h) { return autograd::checkpoint(f, h * 1.0) * 1.0; };
    const Tensor y = depth == 0 ? f(x) : autograd::checkpoint(depth == 1 ? OfOne(f) : OfOne(g), x);
    sum(y * y).backward();
    Values all = norm.running_mean.to_vector();
    for (double v : norm.running_var.to_vector()) all.push_back(v);
    return all;
  };
  CHECK(run(1) == run(0));
  CHECK(run(2) == run(0));
}

TEST_CASE("a checkpointed function does not write in place to what is outside of it") {
  const Tensor w = leaf({2}), x = leaf({3});
  Tensor calls = zeros({1});
  const auto counting = [&](const Tensor& v) {
    Tensor y = v * (w + calls);  // the second call would see another number
    calls.add_(1);
    return y;
  };
  const std::string e = error_of([&] { autograd::checkpoint(counting, x); });
  check_says(e, {"[checkpoint]"});
  check_says(e, {"add_"});
  const auto local = [&](const Tensor& v) {
    Tensor scale = ones({1});
    scale.mul_(5);
    return v * w * scale;
  };
  autograd::checkpoint(local, x).backward();
  CHECK(x.grad().item() == 10);
  CHECK(w.grad().item() == 15);
}
