#include <doctest/doctest.h>

#include "minim/amp/autocast.h"
#include "minim/models/gpt.h"
#include "minim/models/language_model.h"
#include "minim/ops/functional.h"

using namespace minim;

namespace {

size_t activations() { return memory::stats().by_kind[size_t(MemoryKind::activations)].current; }

/// Peak bytes of activations of a forward and backward.
double peak_of_step(DType compute, amp::Policy policy) {
  generator() = {1, 0};
  const models::GPT model({.vocab = 32, .block = 64, .layers = 3, .heads = 2, .embd = 64});
  std::vector<double> ids(4 * 64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = double(i * 7 % 32);
  const Tensor tokens = tensor(ids, {4, 64}, DType::i64);
  const size_t before = activations();
  memory::reset_peak();
  Tensor loss;
  {
    amp::Autocast casts(compute, policy);
    loss = cross_entropy(model(tokens), tokens);
  }
  loss.backward();
  return double(memory::stats().by_kind[size_t(MemoryKind::activations)].peak - before);
}

}  // namespace

TEST_CASE("backward frees what a node saved before it goes on to older nodes") {
  const Index n = 1 << 16;
  const Tensor x = ones({n}).set_requires_grad();
  Tensor first = exp(x), y = first;
  for (int i = 0; i < 8; ++i) y = exp(y * 0.1);
  std::vector<size_t> held;
  first.register_hook([&](const Tensor&) {
    held.push_back(activations());
    return Tensor();
  });
  first = {};
  Tensor loss = sum(y);
  y = {};
  const size_t before = activations();
  SUBCASE("freed") {
    loss.backward();
    REQUIRE(held.size() == 1);
    CHECK(held[0] + 8 * size_t(n) * 4 <= before);  // all but the first exp, whose turn is to come
  }
  SUBCASE("kept by retain_graph") {
    loss.backward(true);
    REQUIRE(held.size() == 1);
    CHECK(held[0] + 8 * size_t(n) * 4 > before);
  }
}

TEST_CASE("under policy lean bf16 activations are at most 0.65 of those in fp32") {
  const double fp32 = peak_of_step(DType::f32, amp::Policy::lean);
  const double lean = peak_of_step(DType::bf16, amp::Policy::lean);
  CHECK(lean <= 0.65 * fp32);
  CHECK(lean >= 0.5 * fp32);  // the residual stream stays f32
}
