// The layers of models/: what they compute, what they remember, what they refuse.
#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/models/attention.h"
#include "minim/models/conv_layers.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::models;
using namespace minim::test;
using Values = std::vector<double>;

namespace {

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

/// Sets a parameter to what noise() gives for it, so that nothing is 0 or 1 by chance.
void disturb(const Module& module) {
  NoGrad no_recording;
  unsigned seed = 1;
  for (Tensor p : module.parameters()) p.copy_(noise(p.shape(), DType::f64, ++seed));
}

/// (4, 1, 1, 1) and 4 values of mean 3 and variance 3.5, unbiased 14 / 3.
Tensor four_values() { return shaped({1, 2, 3, 6}, {4, 1, 1, 1}, DType::f32); }

}  // namespace

TEST_CASE("layers: Sequential runs its modules in order under their numbers") {
  Sequential net;
  Linear& first = net.add<Linear>(2, 3);
  net.add([](const Tensor& x) { return relu(x); });
  net.add<Linear>(3, 1, false);
  CHECK(names_of(net.named_parameters()) ==
        std::vector<std::string>{"0.weight", "0.bias", "2.weight"});
  CHECK(first.path() == "0");
  disturb(net);
  const Tensor x = noise({4, 2});
  const auto p = net.parameters();
  CHECK(net(x).to_vector() == linear(relu(linear(x, p[0], p[1])), p[2]).to_vector());
  CHECK(Sequential()(x).to_vector() == x.to_vector());
}

TEST_CASE("layers: a Sequential in a Sequential has dotted names and hands on mode and dtype") {
  Sequential outer;
  Sequential& inner = outer.add<Sequential>();
  Linear& last = inner.add<Linear>(2, 2);
  Dropout& dropout = inner.add<Dropout>(0.5);
  CHECK(last.path() == "0.0");
  CHECK(names_of(outer.state_dict()) == std::vector<std::string>{"0.0.weight", "0.0.bias"});
  outer.eval();
  CHECK_FALSE(dropout.training());
  CHECK(dropout(ones({100})).to_vector() == Values(100, 1));
  outer.train();
  CHECK(dropout(ones({100})).to_vector() != Values(100, 1));
  outer.to(DType::bf16);
  CHECK(last.weight.dtype() == DType::bf16);
}

TEST_CASE("layers: Function has no parameters and passes gradients") {
  const Function twice([](const Tensor& x) { return 2.0 * x; });
  CHECK(twice.parameters().empty());
  Tensor x = tensor({1, 2});
  x.set_requires_grad();
  sum(twice(x)).backward();
  CHECK(gradient_of(x) == Values{2, 2});
}

TEST_CASE("layers: Conv2d sums each window over its own channels") {
  Conv2d conv(4, 2, 3, {.padding = 1, .groups = 2});
  CHECK(conv.weight.shape() == Shape{2, 2, 3, 3});
  {
    NoGrad no_recording;
    conv.weight.fill_(1);
    conv.bias.copy_(tensor({0.5, -0.5}));
  }
  Tensor x = zeros({1, 4, 2, 2});
  x.slice(1, 0, 2).fill_(1);  // only the first group sees something
  CHECK(conv(x).to_vector() == Values{8.5, 8.5, 8.5, 8.5, -0.5, -0.5, -0.5, -0.5});
  const Conv2d plain(4, 8, 1, {.stride = 2}, false);
  CHECK(names_of(plain.named_parameters()) == std::vector<std::string>{"weight"});
  CHECK(plain(x).shape() == Shape{1, 8, 1, 1});
  CHECK(has(error_of([] { Conv2d(3, 4, 3, {.groups = 2}); }), "cut into 2 groups"));
  CHECK(has(error_of([&] { plain(zeros({1, 3, 2, 2})); }), "(1, 3, 2, 2)"));
}

TEST_CASE("layers: BatchNorm2d learns its statistics in training and uses them in eval mode") {
  BatchNorm2d norm(1, 0, 0.5);
  const double r = 1 / std::sqrt(3.5);
  check_close(norm(four_values()).to_vector(), {-2 * r, -r, 0, 3 * r}, 1e-6);
  check_close(norm.running_mean.to_vector(), {1.5}, 1e-6);
  check_close(norm.running_var.to_vector(), {0.5 + 7.0 / 3}, 1e-6);
  norm.eval();
  const double s = 1 / std::sqrt(0.5 + 7.0 / 3);
  for (int repeat = 0; repeat < 2; ++repeat)  // eval mode moves nothing
    check_close(norm(four_values()).to_vector(), {-0.5 * s, 0.5 * s, 1.5 * s, 4.5 * s}, 1e-6);
  CHECK(norm(four_values().slice(0, 0, 1)).numel() == 1);
}

TEST_CASE("layers: the state of BatchNorm2d has its statistics and brings them back") {
  Sequential net, other;
  net.add<BatchNorm2d>(2);
  other.add<BatchNorm2d>(2);
  CHECK(names_of(net.state_dict()) ==
        std::vector<std::string>{"0.weight", "0.bias", "0.running_mean", "0.running_var"});
  CHECK(net.parameters().size() == 2);
  disturb(net);
  const Tensor x = noise({3, 2, 4, 4});
  net(x);
  other.load_state_dict(net.state_dict());
  net.eval(), other.eval();
  CHECK(other(x).to_vector() == net(x).to_vector());
  NamedTensors without = net.state_dict();
  without.pop_back();
  CHECK(has(error_of([&] { other.load_state_dict(without); }), "missing: 0.running_var"));
}

TEST_CASE("layers: BatchNorm2d keeps statistics in fp32 in every precision") {
  const Tensor x = 300.0 * four_values() + 1000.0;  // a variance that f16 does not hold
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const bool autocast : {true, false}) {
      CAPTURE(name_of(dtype));
      CAPTURE(autocast);
      BatchNorm2d norm(1, 1e-5, 1);
      if (!autocast) norm.to(dtype);
      Tensor y;
      {
        amp::Autocast casts(autocast ? dtype : DType::f32);
        y = norm(x.to(dtype));
      }
      sum(y).backward();
      CHECK(y.dtype() == dtype);
      CHECK(norm.weight.grad().dtype() == DType::f32);
      CHECK(norm.running_var.dtype() == DType::f32);
      const Values seen = x.to(dtype).to_vector();
      double mean = 0, var = 0;
      for (const double v : seen) mean += v / 4;
      for (const double v : seen) var += (v - mean) * (v - mean) / 3;
      check_close(norm.running_mean.to_vector(), {mean}, 1e-6);
      check_close(norm.running_var.to_vector(), {var}, 1e-6);
    }
}

TEST_CASE("layers: BatchNorm2d refuses to train on one value per channel and stays as it was") {
  BatchNorm2d norm(3);
  const Tensor one = ones({1, 3, 1, 1});
  const std::string error = error_of([&] { norm(one); });
  CHECK(has(error, "[batch_norm_update] x (1, 3, 1, 1) has one value per channel"));
  CHECK(has(error, "eval"));
  CHECK(norm.running_mean.to_vector() == Values{0, 0, 0});
  CHECK(norm.running_var.to_vector() == Values{1, 1, 1});
  norm.eval();
  CHECK(norm(one).shape() == one.shape());
  norm.train();
  CHECK(norm(zeros({0, 3, 2, 2})).numel() == 0);
  CHECK(norm.running_var.to_vector() == Values{1, 1, 1});
}

TEST_CASE("batch_norm_update refuses statistics that are not one number per channel") {
  const Tensor x = noise({4, 3}), three = zeros({3});
  for (const Shape& wrong : {Shape{1}, Shape{2}, Shape{2, 3}}) {
    const Tensor other = ones(wrong);
    CHECK(has(error_of([&] { batch_norm_update(x, three, other); }), "expected (3)"));
    CHECK(has(error_of([&] { batch_norm_update(x, other, three); }), "expected (3)"));
  }
  CHECK(three.to_vector() == Values{0, 0, 0});
}

TEST_CASE("layers: GroupNorm does the same alone and in a batch and in either mode") {
  GroupNorm norm(2, 4, 0);
  disturb(norm);
  const Tensor x = noise({3, 4, 2, 2});
  const Values y = norm(x).to_vector();
  norm.eval();
  CHECK(norm(x).to_vector() == y);
  const Values alone = norm(x.slice(0, 1, 2)).to_vector();
  CHECK(alone == Values(y.begin() + 16, y.begin() + 32));
  const Tensor plain = layer_norm(x.reshape({3, 2, 8}), {}, {}, {.eps = 0}).reshape(x.shape());
  const Shape channel{4, 1, 1};
  check_close((plain * norm.weight.reshape(channel) + norm.bias.reshape(channel)).to_vector(), y,
              1e-5);
  CHECK(has(error_of([] { GroupNorm(3, 4); }), "4 channels cannot be cut into 3 groups"));
  CHECK(has(error_of([] { GroupNorm(0, 4); }), "into 0 groups"));
}

TEST_CASE("layers: RMSNorm divides by the root of the mean square and has a gain alone") {
  RMSNorm norm(2, 0);
  CHECK(names_of(norm.state_dict()) == std::vector<std::string>{"weight"});
  {
    NoGrad no_recording;
    norm.weight.copy_(tensor({1, 2}));
  }
  const double r = std::sqrt(12.5);
  check_close(norm(shaped({3, 4, -30, 40}, {2, 2}, DType::f32)).to_vector(),
              {3 / r, 8 / r, -3 / r, 8 / r}, 1e-6);
  amp::Autocast casts(DType::f16);
  const Tensor large = norm(tensor({3e4, 4e4}, DType::f16));  // their squares are inf in f16
  check_close(large.to_vector(), {3 / r, 8 / r}, 1e-3);
}

namespace {

constexpr Index kBatch = 2, kTime = 5, kWidth = 12, kHeads = 3;

AttentionConfig attention_config(Index kv_heads, bool rope, Index capacity = kTime) {
  return {
      .width = kWidth, .heads = kHeads, .kv_heads = kv_heads, .rope = rope, .capacity = capacity};
}

/// The formula, a head at a time.
Tensor attention_by_heads(const MultiHeadAttention& m, const AttentionConfig& c, const Tensor& x) {
  const Index head = c.width / c.heads, kv_heads = c.kv_heads ? c.kv_heads : c.heads;
  const Tensor all = linear(x, m.qkv.weight, m.qkv.bias);
  const Tensor future = arange(kTime).unsqueeze(0) > arange(kTime).unsqueeze(1);
  std::vector<Tensor> heads;
  for (Index h = 0; h < c.heads; ++h) {
    auto columns = [&](Index from) { return all.slice(2, from * head, (from + 1) * head); };
    const Index shared = h / (c.heads / kv_heads);
    Tensor q = columns(h), k = columns(c.heads + shared), v = columns(c.heads + kv_heads + shared);
    if (c.rope) q = rope(q), k = rope(k);
    const Tensor scores = matmul(q, k.transpose(1, 2)) / std::sqrt(double(head));
    heads.push_back(matmul(softmax(masked_fill(scores, future, -INFINITY)), v));
  }
  return linear(cat(heads, 2), m.out.weight, m.out.bias);
}

}  // namespace

TEST_CASE("layers: MultiHeadAttention is its formula with shared heads and rotated positions") {
  for (const AttentionKernel kernel : {AttentionKernel::fused, AttentionKernel::reference})
    for (const Index kv_heads : {0, 1, 3})
      for (const bool rope : {false, true}) {
        CAPTURE(kv_heads);
        CAPTURE(rope);
        AttentionConfig config = attention_config(kv_heads, rope);
        config.kernel = kernel;
        MultiHeadAttention attention(config);
        attention.to(DType::f64);
        disturb(attention);
        const Tensor x = noise({kBatch, kTime, kWidth}, DType::f64);
        check_close(attention(x).to_vector(), attention_by_heads(attention, config, x).to_vector(),
                    1e-10);
      }
}

TEST_CASE("layers: MultiHeadAttention drops probabilities in training alone") {
  AttentionConfig config = attention_config(0, false);
  config.dropout = 0.5;
  MultiHeadAttention attention(config);
  disturb(attention);
  const Tensor x = noise({kBatch, kTime, kWidth});
  manual_seed(3);
  const Tensor dropped = attention(x);
  config.kernel = AttentionKernel::reference;
  MultiHeadAttention reference(config);
  disturb(reference);
  manual_seed(3);
  check_close(dropped.to_vector(), reference(x).to_vector(), 1e-5);
  const auto whole = attention_by_heads(attention, config, x).to_vector();
  CHECK(dropped.to_vector() != whole);
  attention.eval();
  check_close(attention(x).to_vector(), whole, 1e-5);
}

TEST_CASE("layers: MultiHeadAttention token by token with a cache gives what it gives at once") {
  for (const bool rope : {false, true}) {
    MultiHeadAttention attention(attention_config(1, rope));
    attention.to(DType::f64);
    disturb(attention);
    NoGrad no_recording;
    const Tensor x = noise({kBatch, kTime, kWidth}, DType::f64);
    LayerCache cache;
    std::vector<Tensor> parts{attention(x.slice(1, 0, 2), &cache)};
    for (Index t = 2; t < kTime; ++t) parts.push_back(attention(x.slice(1, t, t + 1), &cache));
    CHECK(cache.length == kTime);
    CHECK(cache.k.shape() == Shape{kBatch, 1, kTime, kWidth / kHeads});
    check_close(cat(parts, 1).to_vector(), attention(x).to_vector(), 1e-12);
    CHECK(has(error_of([&] { attention(x.slice(1, 0, 1), &cache); }),
              "a cache of 5 tokens cannot hold 6"));
    CHECK(cache.length == kTime);
    cache.length = 2;
    CHECK(has(error_of([&] { attention(x.slice(1, 0, 2), &cache); }), "one more at a time, not 2"));
    CHECK(
        has(error_of([&] { attention(x.slice(0, 0, 1).slice(1, 0, 1), &cache); }), "(1, 1, 1, 4)"));
    CHECK(cache.length == 2);
  }
}

TEST_CASE("layers: a cache refuses what differs from what it holds") {
  LayerCache cache;
  const Tensor kv = ones({2, 3, 2, 4});
  cache.append(kv, kv, 8);
  const Tensor wrong[] = {ones({1, 3, 2, 4}), ones({2, 1, 2, 4}),
                          ones({2, 3, 2, 1}), ones({2, 3, 2, 4}, DType::bf16),
                          ones({2, 3, 1, 4}), ones({4})};
  for (const Tensor& other : wrong) {
    CHECK(has(error_of([&] { cache.append(kv, other, 8); }), "cache"));
    CHECK(cache.length == 2);
  }
  CHECK(cache.v.slice(2, 2, 8).to_vector() == Values(144, 0));
  const auto [k, v] = cache.append(kv, kv, 8);
  CHECK(k.shape() == Shape{2, 3, 4, 4});
  CHECK(v.to_vector() == Values(96, 1));
}

TEST_CASE("layers: MultiHeadAttention refuses sizes that do not divide") {
  auto error = [](const AttentionConfig& c) { return error_of([&] { MultiHeadAttention m(c); }); };
  CHECK(has(error({.width = 10, .heads = 3}), "10 is not divisible by heads 3"));
  CHECK(has(error({.width = 10, .heads = 0}), "not divisible by heads 0"));
  CHECK(has(error({.width = 12, .heads = 4, .kv_heads = 3}), "cannot share 3"));
  CHECK(has(error({.width = 12, .heads = 4, .kv_heads = -1}), "cannot share -1"));
  CHECK(has(error({.width = 12, .heads = 4, .dropout = 1}), "dropout must be in [0, 1), not 1"));
  CHECK(has(error_of([] {
              MultiHeadAttention({.width = 6, .heads = 2, .rope = true})(ones({1, 2, 6}));
            }),
            "rope"));
  const MultiHeadAttention attention({.width = 12, .heads = 4});
  CHECK(has(error_of([&] { attention(ones({3, 12})); }), "(3, 12)"));
  CHECK(has(error_of([&] { attention(ones({1, 3, 8})); }), "(1, 3, 8)"));
}
