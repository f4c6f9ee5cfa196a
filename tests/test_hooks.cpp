#include <doctest/doctest.h>

#include <chrono>

#include "minim/amp/autocast.h"
#include "minim/autograd/checkpoint.h"
#include "minim/models/gpt.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"

using namespace minim;
using doctest::Contains;

namespace {

using Values = std::vector<double>;
using OfOne = std::function<Tensor(const Tensor&)>;

Tensor leaf(std::initializer_list<double> values, DType d = DType::f32) {
  return tensor(values, d).set_requires_grad();
}

}  // namespace

TEST_CASE("a hook on a result sees its whole gradient and replaces it for what came before") {
  const Tensor x = leaf({1, 2}), y = x * 3.0;
  Values seen;
  const HookHandle handle = y.register_hook([&](const Tensor& g) {
    seen = g.to_vector();
    return g * 10.0;
  });
  (y * 2.0 + y).backward(ones({2}), true);
  CHECK(seen == Values{3, 3});
  CHECK(x.grad().to_vector() == Values{90, 90});
  handle.remove();
  handle.remove();
  x.set_grad({});
  (y * 2.0 + y).backward(ones({2}));
  CHECK(x.grad().to_vector() == Values{9, 9});
}

TEST_CASE("what a hook keeps of a sum's gradient is no leaf's gradient") {
  const Tensor x = leaf({1, 2}), y = leaf({1, 2}), z = y * 1.0, root = leaf({1, 2});
  std::vector<Tensor> kept;
  for (const Tensor& hooked : {y, z})
    hooked.register_hook([&](const Tensor& g) { return kept.push_back(g), Tensor(); });
  const Tensor given = tensor({1, 1});
  root.backward(given);
  for (const Tensor& other : {y, z}) {
    x.set_grad({});
    sum(x + other).backward();
    CHECK(x.grad().to_vector() == Values{1, 1});
    NoGrad no_recording;
    x.grad().fill_(7);
  }
  NoGrad no_recording;
  for (const Tensor& leaf : {y, root}) leaf.grad().fill_(7);
  CHECK(kept.size() == 3);
  for (const Tensor& g : kept) CHECK(g.to_vector() == Values{1, 1});
  CHECK(given.to_vector() == Values{1, 1});
}

TEST_CASE("a hook on a leaf sees the sum over one backward before it is added to the gradient") {
  for (DType d : {DType::f32, DType::f16}) {
    const Tensor x = leaf({1, 2}, d);
    std::vector<Tensor> seen;
    x.register_hook([&](const Tensor& g) {
      seen.push_back(g);
      return Tensor();
    });
    x.register_hook([&](const Tensor& g) { return g + 1.0; });
    for (int i = 0; i < 2; ++i) (x * 2.0 + x * 3.0).backward(ones({2}));
    REQUIRE(seen.size() == 2);
    CHECK(seen[1].to_vector() == Values{5, 5});
    CHECK(seen[1].dtype() == DType::f32);
    CHECK(x.grad().to_vector() == Values{12, 12});
    x.backward(ones({2}));
    CHECK(x.grad().to_vector() == Values{14, 14});
    CHECK(seen[0].to_vector() == Values{5, 5});  // what a hook kept is not written to
  }
}

TEST_CASE("hooks run in order and one may remove itself") {
  const Tensor x = leaf({1});
  std::string order;
  HookHandle first = x.register_hook([&](const Tensor&) {
    order += "a";
    first.remove();
    return Tensor();
  });
  x.register_hook([&](const Tensor&) {
    order += "b";
    return Tensor();
  });
  for (int i = 0; i < 2; ++i) (x * 1.0).backward(ones({1}));
  CHECK(order == "abb");
}

TEST_CASE("a hook that cannot work is an error") {
  CHECK_THROWS_WITH_AS(tensor({1}).register_hook([](const Tensor& g) { return g; }),
                       Contains("does not require gradients"), Error);
  const Tensor x = leaf({1, 2}), y = exp(x);
  y.register_hook([](const Tensor&) { return ones({3}); });
  CHECK_THROWS_WITH_AS(y.backward(ones({2})), Contains("[exp backward] a hook"), Error);
}

TEST_CASE("hooks inside a checkpointed function run once in backward") {
  const Tensor x = leaf({1, 2});
  int calls = 0;
  const auto f = [&](const Tensor& v) {
    const Tensor y = v * 3.0;
    y.register_hook([&](const Tensor& g) {
      ++calls;
      return g * 2.0;
    });
    return y * 5.0;
  };
  const Tensor out = autograd::checkpoint(f, x);
  out.register_hook([](const Tensor& g) { return g * 7.0; });
  out.backward(ones({2}));
  CHECK(calls == 1);
  CHECK(x.grad().to_vector() == Values{210, 210});
}

TEST_CASE("a hook that a checkpointed function puts on what is outside of it runs once") {
  const auto run = [](DType casts, int depth) {
    const Tensor w = leaf({1, 2}), x = leaf({1, 2}), v = x * 1.0;
    int calls = 0;
    const auto twice = [&](const Tensor& g) { return ++calls, g * 2.0; };
    std::vector<HookHandle> handles;
    const auto f = [&](const Tensor& h) {
      const Tensor y = w.to(casts) * 1.0;  // a leaf's cast, where it is one
      for (const Tensor& t : {w, w.to(casts), v}) handles.push_back(t.register_hook(twice));
      return h * y;
    };
    const auto g = [&](const Tensor& h) { return autograd::checkpoint(f, h * 1.0) * 1.0; };
    const Tensor y = autograd::checkpoint(depth == 1 ? f : OfOne(g), v);
    y.backward(ones({2}), true);
    Values all = w.grad().to_vector();
    for (double d : x.grad().to_vector()) all.push_back(d);
    all.push_back(calls);
    for (HookHandle& h : handles) h.remove();  // those of the second call are those of the first
    y.backward(ones({2}));
    all.push_back(calls);
    return all;
  };
  for (int depth : {1, 2}) {
    // w itself is hooked twice where it is its own cast.
    CHECK(run(DType::f32, depth) == Values{4, 8, 2, 4, 3, 3});
  }
}

TEST_CASE("under autocast a checkpointed function's hook on a leaf or its cast runs once") {
  for (bool on_cast : {false, true})
    for (bool recompute : {false, true}) {
      const Tensor w = tensor({1, 2, 3, 4}).reshape({2, 2}).set_requires_grad();
      const Tensor x = ones({2, 2});
      int calls = 0;
      {
        amp::Autocast casts(DType::bf16);
        const auto f = [&](const Tensor& h) {
          const Tensor cast = w.to(DType::bf16);
          (on_cast ? cast : w).register_hook([&](const Tensor& g) { return ++calls, g * 2.0; });
          return matmul(h, on_cast ? cast : w);
        };
        sum(recompute ? autograd::checkpoint(f, x) : f(x)).backward();
      }
      CHECK(calls == 1);
      CHECK(w.grad().to_vector() == Values(4, 4));
    }
}

TEST_CASE("the time for hooks on leaves grows with their number") {
  const auto seconds = [](size_t n) {
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < n; ++i) {
      leaves.push_back(leaf({1}));
      leaves.back().register_hook([](const Tensor& g) { return g * 2.0; });
    }
    Tensor total = leaves[0] * 1.0;
    for (size_t i = 1; i < n; ++i) total = total + leaves[i];
    const auto start = std::chrono::steady_clock::now();
    total.backward(ones({1}));
    CHECK(leaves.back().grad().item() == 2);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  CHECK(seconds(80000) < 10 * std::max(seconds(20000), 0.02));  // 4, if nothing else ran
}

TEST_CASE("chains of 80000 calls whose hooks hold what came before are freed without recursion") {
  for (auto next : {+[](const Tensor&x, const Tensor&) { return x + 1.0; },
                    +[](const Tensor&x, const Tensor&) { return x + x; },
                    +[](const Tensor&, const Tensor&w) { return w * 1.0; },
                    +[](const Tensor&, const Tensor&) { return leaf({1}); },
                    +[](const Tensor&x, const Tensor&) {
                      return autograd::checkpoint([](const Tensor& v) { return v * 1.0; }, x);
                    }}) {
    const Tensor w = leaf({1});
    Tensor x = w * 1.0;
    for (int i = 0; i < 80000; ++i) {
      const Tensor y = next(x, w);
      y.register_hook([x](const Tensor&) { return x.detach(); });
      x = y;
    }
  }
  CHECK(true);
}

TEST_CASE("what a hook on a checkpoint's result kept or returned is not written to") {
  const Tensor x = leaf({1, 2}), returned = tensor({5, 6});
  Tensor kept;
  const auto f = [](const std::vector<Tensor>& in) {
    const Tensor y = in[0] * 3.0;
    return std::vector{y, y * 2.0};
  };
  const std::vector<Tensor> y = autograd::checkpoint(f, {x});
  y[0].register_hook([&](const Tensor& g) {
    kept = g;
    return returned;
  });
  sum(y[0] * 7.0 + y[1]).backward();
  CHECK(kept.to_vector() == Values{7, 7});
  CHECK(returned.to_vector() == Values{5, 6});
  CHECK(x.grad().to_vector() == Values{21, 24});
}

TEST_CASE("forward hooks of modules see path and operands and may replace the result") {
  models::GPT model({.vocab = 5, .block = 4, .layers = 2, .heads = 1, .embd = 4});
  std::vector<std::string> paths;
  std::vector<HookHandle> handles;
  for (const auto& [path, module] : model.named_modules()) {
    CHECK(module->path() == path);
    handles.push_back(
        module->register_forward_hook([&](const models::Module& m, const Tensor&, const Tensor& y) {
          paths.push_back(m.path());
          return m.path() == "blocks.1.norm2" ? y * 0.0 : Tensor();
        }));
  }
  const Tensor tokens = tensor({0, 1, 2}, DType::i64).reshape({1, 3});
  const Tensor with = model(tokens);
  REQUIRE(paths.size() == 25);
  paths.erase(paths.begin(), paths.begin() + 2);  // tokens and positions, in either order
  CHECK(paths == std::vector<std::string>{"dropout",
                                          "blocks.0.norm1",
                                          "blocks.0.attn.qkv",
                                          "blocks.0.attn.out",
                                          "blocks.0.attn",
                                          "blocks.0.dropout",
                                          "blocks.0.norm2",
                                          "blocks.0.mlp.up",
                                          "blocks.0.mlp.down",
                                          "blocks.0.dropout",
                                          "blocks.0",
                                          "blocks.1.norm1",
                                          "blocks.1.attn.qkv",
                                          "blocks.1.attn.out",
                                          "blocks.1.attn",
                                          "blocks.1.dropout",
                                          "blocks.1.norm2",
                                          "blocks.1.mlp.up",
                                          "blocks.1.mlp.down",
                                          "blocks.1.dropout",
                                          "blocks.1",
                                          "norm",
                                          ""});
  for (const HookHandle& handle : handles) handle.remove();
  const Tensor without = model(tokens);
  CHECK(paths.size() == 23);
  CHECK(with.to_vector() != without.to_vector());
}

TEST_CASE("a module that takes something else says so when called with one tensor") {
  struct Empty : models::Module {};
  const Empty module;
  CHECK_THROWS_WITH_AS(module(ones({1})), Contains("does not take one tensor"), Error);
}

TEST_CASE("a gradient has no derivative and backward through one names the op") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  sum(exp(x) * w).backward();
  const Tensor penalty = sum(x.grad() * x.grad());
  CHECK_THROWS_WITH_AS(penalty.backward(), Contains("[exp] backward()"), Error);
  CHECK_THROWS_WITH_AS(penalty.backward(), Contains("no second derivative"), Error);
  const Tensor loss = sum(w * w) + penalty;  // would be wrong, silently
  CHECK_THROWS_WITH_AS(loss.backward(), Contains("no second derivative"), Error);
  CHECK_THROWS_WITH_AS(x.grad().backward(ones({2})), Contains("second derivative"), Error);
  w.set_grad({});
  sum(w * x.grad().detach()).backward();
  CHECK(w.grad().to_vector() == x.grad().to_vector());
  Tensor from_hook;
  const Tensor y = exp(x);
  y.register_hook([&](const Tensor& g) {
    from_hook = g;
    return Tensor();
  });
  sum(y).backward();
  CHECK_THROWS_WITH_AS(sum(from_hook * w).backward(), Contains("no second derivative"), Error);
}

TEST_CASE("a gradient is never of a wider dtype than its tensor takes, so that inf is seen") {
  for (DType d : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(std::string(name_of(d)));
    const Tensor w = ones({2}, d).set_requires_grad();
    optim::SGD opt({w}, {.lr = 1, .allow_plain_half = true});
    const auto is_skipped = [&] {
      CHECK(w.grad().dtype() == DType::f32);
      CHECK(opt.step().found_inf);
      opt.zero_grad();
    };
    CHECK_THROWS_AS(w.set_grad(ones({2}, DType::f8e4m3)), Error);
    w.set_grad(full({2}, 1e39, DType::f64));
    is_skipped();
    (w * 2.0).backward(full({2}, 1e39, DType::f64));
    is_skipped();
    w.backward(full({2}, 1e39, DType::f64));
    is_skipped();
    w.register_hook([](const Tensor& g) { return g.to(DType::f64) * 1e39; });
    sum(w).backward();
    is_skipped();
    CHECK(w.to_vector() == std::vector<double>{1, 1});
  }
}
