#include <doctest/doctest.h>

#include <cstring>
#include <optional>

#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"
#include "minim/autograd/checkpoint.h"
#include "minim/models/gpt.h"
#include "minim/models/language_model.h"
#include "minim/ops/call.h"
#include "minim/ops/composite.h"
#include "minim/ops/functional.h"
#include "minim/tools/trainer.h"

using namespace minim;
using autograd::checkpoint;
using doctest::Contains;

namespace {

using Values = std::vector<double>;

Tensor leaf(std::initializer_list<double> values, DType d = DType::f32) {
  return tensor(values, d).set_requires_grad();
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), size_t(a.numel()) * size_of(a.dtype())) == 0;
}

/// Gradients of a GPT after `micros` accumulated micro-batches, with and without recompute.
std::vector<Tensor> gradients(const std::string& mode, bool recompute, int micros = 2) {
  const amp::Precision precision = amp::resolve_precision(mode, "auto", "torch");
  manual_seed(3);
  models::GPT model({.vocab = 11,
                     .block = 8,
                     .layers = 3,
                     .heads = 2,
                     .embd = 16,
                     .dropout = 0.2,
                     .checkpoint_activations = recompute});
  if (precision.params != DType::f32) model.to(precision.params);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(i * i % 11);
  const std::vector<int64_t> starts = {0, 5, 9};
  const models::Batch batch = models::make_batch(tokens, starts, 8);
  amp::GradScaler scaler(precision.scaler_config);
  std::vector<Tensor> all;
  for (int i = 0; i < micros; ++i) {
    Tensor loss;
    {
      amp::Autocast casts(precision.autocast ? precision.compute : DType::f32, precision.policy);
      loss = cross_entropy(model(batch.inputs), batch.targets);
    }
    scaler.scale(loss).backward();
    all.push_back(loss.detach());
  }
  all.push_back(tensor({double(generator().next_stream)}, DType::f64));
  for (const Tensor& p : model.parameters()) all.push_back(p.grad());
  return all;
}

}  // namespace

TEST_CASE("E2: recompute gives the same bits in every precision with dropout on" *
          doctest::test_suite("host")) {
  for (const char* mode :
       {"fp32", "amp-bf16", "amp-fp16", "bf16-master", "fp16-master", "bf16-sr"}) {
    CAPTURE(mode);
    const auto plain = gradients(mode, false), again = gradients(mode, true);
    REQUIRE(plain.size() == again.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(plain[i], again[i]));
    }
  }
}

TEST_CASE("recompute keeps the order of sums where a weight is used inside and outside" *
          doctest::test_suite("host")) {
  for (DType d : {DType::f32, DType::f16, DType::bf16}) {
    const auto run = [&](bool recompute) {
      manual_seed(9);
      const Tensor w = tensor({0.3, -0.7, 0.11, 0.9}).reshape({2, 2}).set_requires_grad();
      const Tensor bias = leaf({0.013, -0.17});
      const Tensor v = tensor({0.7, 0.31, -0.2, 0.6}).reshape({2, 2}).set_requires_grad();
      const Tensor x = tensor({0.9, -0.123, 0.456, 0.789}).reshape({2, 2}).set_requires_grad();
      for (int i = 0; i < 3; ++i) {
        amp::Autocast casts(d);
        const auto f = [&](const Tensor& h) {
          Tensor y = dropout(linear(h, w, bias), {.p = 0.3}) + h * w + linear(tanh(h), w);
          y = linear(y * v, v) * v;  // v's cast lies between two uses of v itself
          return y * w + linear(y, w, bias) + h;
        };
        Tensor h = linear(x, w) + x * bias;
        for (int j = 0; j < 3; ++j) h = recompute ? checkpoint(f, h) : f(h);
        sum(h * h + linear(h, w) + x * 0.1).to(DType::f32).backward();
      }
      return std::vector{w.grad(), v.grad(), bias.grad(), x.grad()};
    };
    const auto plain = run(false), again = run(true);
    for (size_t k = 0; k < plain.size(); ++k) CHECK(same_bits(plain[k], again[k]));
  }
}

TEST_CASE("checkpoint draws the same random numbers again and leaves the generator alone") {
  const Tensor x = ones({1000}).set_requires_grad();
  const auto f = [](const Tensor& h) { return dropout(h, {.p = 0.5}); };
  manual_seed(1);
  const Tensor y = checkpoint(f, x);
  const Tensor other = dropout(x.detach(), {.p = 0.5});
  const uint64_t before = generator().next_stream;
  y.backward(ones({1000}));
  CHECK(generator().next_stream == before);
  CHECK(x.grad().to_vector() == y.to_vector());
  CHECK(other.to_vector() != y.to_vector());
}

TEST_CASE("checkpoint in checkpoint gives the same bits" * doctest::test_suite("host")) {
  const auto run = [](int depth) {
    manual_seed(2);
    const Tensor w = leaf({0.3, -0.7, 1.1}), x = leaf({0.7, 0.2, 0.9});
    const auto inner = [&](const Tensor& h) { return dropout(exp(h * w), {.p = 0.4}) * h; };
    const auto outer = [&](const Tensor& h) {
      const Tensor once = depth > 1 ? checkpoint(inner, h * 0.5) : inner(h * 0.5);
      return (depth > 1 ? checkpoint(inner, once) : inner(once)) + once * w;
    };
    for (int i = 0; i < 3; ++i) {
      Tensor y = depth > 0 ? checkpoint(outer, x) : outer(x);
      sum((depth > 0 ? checkpoint(outer, y) : outer(y)) * w).backward();
    }
    return std::vector{w.grad(), x.grad()};
  };
  const auto plain = run(0);
  for (int depth : {1, 2}) {
    const auto again = run(depth);
    for (size_t k = 0; k < plain.size(); ++k) CHECK(same_bits(plain[k], again[k]));
  }
}

TEST_CASE("checkpoint takes and gives several tensors and passes through what it did not make") {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4}), w = leaf({5, 6});
  const Tensor plain = tensor({7, 8});
  const auto out = checkpoint(
      [&](const std::vector<Tensor>& v) {
        const Tensor p = v[0] * v[1];
        return std::vector{p, p * w, v[0], p, v[2] > 7.0};
      },
      {x, y, plain});
  REQUIRE(out.size() == 5);
  CHECK(out[2].impl() == x.impl());
  CHECK_FALSE(out[4].requires_grad());
  (out[1] + out[0] + out[3] + out[2]).backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{3 * 5 + 6 + 1, 4 * 6 + 8 + 1});
  CHECK(w.grad().to_vector() == Values{3, 8});
  // only a captured parameter requires gradients
  const Tensor z = checkpoint([&](const Tensor& v) { return v * w; }, plain);
  z.backward(ones({2}));
  CHECK(w.grad().to_vector() == Values{3 + 7, 8 + 8});
  NoGrad guard;
  CHECK_FALSE(checkpoint([&](const Tensor& v) { return v * w; }, x).requires_grad());
}

TEST_CASE("checkpoint can be gone through twice only where the graph is retained") {
  const Tensor x = leaf({3});
  const Tensor y = checkpoint([](const Tensor& v) { return v * v; }, x);
  y.backward(ones({1}), true);
  y.backward(ones({1}));
  CHECK(x.grad().item() == 12);
  CHECK_THROWS_WITH_AS(y.backward(ones({1})), Contains("retain_graph"), Error);
}

TEST_CASE("checkpoint says what it cannot do") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}).set_name("w");
  Tensor leaked;
  bool more = false;
  const auto f = [&](const Tensor& v) {
    leaked = v * 2.0;
    return more ? exp(leaked * w) * w : exp(leaked * w);
  };
  const Tensor y = checkpoint(f, x);
  CHECK_THROWS_WITH_AS(leaked * 2.0, Contains("not returned"), Error);
  CHECK_THROWS_WITH_AS(leaked.backward(ones({2})), Contains("inside checkpoint"), Error);
  more = true;
  CHECK_THROWS_WITH_AS(y.backward(ones({2})), Contains("other ops than in forward"), Error);
  CHECK_FALSE(x.grad().defined());
  const Tensor z = checkpoint(f, x);
  more = false;
  CHECK_THROWS_WITH_AS(z.backward(ones({2})), Contains("other ops than in forward"), Error);
  const Tensor late = checkpoint(f, x);
  {
    NoGrad guard;
    Tensor(w).mul_(2.0);
  }
  CHECK_THROWS_WITH_AS(late.backward(ones({2})), Contains("'w') was changed in place"), Error);
}

TEST_CASE(
    "a tensor without gradient that a checkpointed function used may not change before backward") {
  const Tensor x = ones({2}).set_requires_grad();
  for (int kind = 0; kind < 4; ++kind) {
    CAPTURE(kind);
    const bool lower = kind % 2, said = kind / 2;
    Tensor frozen = full({2, 1}, 3), y;
    if (said) frozen.set_requires_grad(false);
    const auto f = [&](const Tensor& a) { return matmul(a.reshape({1, 2}), frozen) * 2.0; };
    {
      std::optional<amp::Autocast> on;
      if (lower) on.emplace(DType::bf16);
      y = sum(autograd::checkpoint(f, x));
    }
    frozen.mul_(10);
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("changed in place since the forward"),
                         Error);
  }
}

TEST_CASE("autocast that ended before backward is there again in the recompute") {
  const Tensor w = tensor({1 + 0x1p-12, 2, 3, 4}).reshape({2, 2}).set_requires_grad();
  const Tensor x = tensor({1 + 0x1p-12, 2}).reshape({1, 2}).set_requires_grad();
  std::vector<DType> seen;
  Tensor y;
  {
    amp::Autocast casts(DType::f16, {{Op::exp, Cast::keep}});
    y = checkpoint(
        [&](const Tensor& v) {
          const Tensor p = exp(matmul(v, w) * 0.1);
          seen.push_back(p.dtype());
          return p;
        },
        x);
  }
  amp::Autocast other(DType::bf16);
  sum(y.to(DType::f32)).backward();
  CHECK(seen == std::vector{DType::f16, DType::f16});
}

TEST_CASE("recompute lowers the peak of activations") {
  const auto peak = [](bool recompute) {
    models::GPT model({.vocab = 11,
                       .block = 32,
                       .layers = 8,
                       .heads = 2,
                       .embd = 32,
                       .checkpoint_activations = recompute});
    const std::vector<int32_t> tokens(200, 3);
    const std::vector<int64_t> starts = {0, 1, 2, 3};
    const models::Batch batch = models::make_batch(tokens, starts, 32);
    memory::reset_peak();
    const size_t before = memory::stats().by_kind[size_t(MemoryKind::activations)].current;
    cross_entropy(model(batch.inputs), batch.targets).backward();
    return memory::stats().by_kind[size_t(MemoryKind::activations)].peak - before;
  };
  const size_t plain = peak(false), less = peak(true);
  INFO(plain << " and " << less);
  CHECK(less * 3 < plain);
}

TEST_CASE("chains of checkpoints are freed without recursion") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 30000; ++i) y = checkpoint([](const Tensor& v) { return v + 1.0; }, y);
  y.backward();
  CHECK(x.grad().item() == 1);
  for (int i = 0; i < 30000; ++i) y = checkpoint([](const Tensor& v) { return v + 1.0; }, y);
}

TEST_CASE("a training run with --checkpoint-activations has the same losses and gradient norms" *
          doctest::test_suite("host")) {
  for (const char* precision : {"fp32", "amp-fp16"}) {
    const auto run = [&](bool recompute, bool anomaly) {
      TrainConfig c;
      c.model = {.layers = 2, .heads = 2, .embd = 16, .block = 16, .dropout = 0.1};
      c.input.toy_tokens = 3000;
      c.train.batch = 4;
      c.train.accum = 2;
      c.amp.precision = precision;
      c.run.checkpoint_activations = recompute;
      c.run.anomaly = anomaly;
      Trainer trainer(c);
      Values all;
      for (int i = 0; i < 4; ++i) {
        const StepReport r = trainer.step().value();
        all.insert(all.end(), {r.loss, r.grad_norm, r.scale});
      }
      all.push_back(double(trainer.underflow().nonzero()));
      all.push_back(double(trainer.underflow().lost()));
      return all;
    };
    const Values plain = run(false, false);
    CHECK(run(true, false) == plain);
    CHECK(run(false, true) == plain);
    CHECK(run(true, true) == plain);
  }
}
