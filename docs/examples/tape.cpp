// Chapter 6: the tape, and what one may ask of it.
#include <thread>

#include "minim/autograd/anomaly.h"
#include "minim/autograd/checkpoint.h"
#include "minim/docs/examples/expect.h"
#include "minim/models/layers.h"
#include "minim/ops/functional.h"

using namespace minim;

double value(const Tensor& x, Index i) { return x.to_vector()[size_t(i)]; }

void nodes() {
  Tensor x = tensor({1, 2}).set_requires_grad();
  Tensor a = exp(x), b = sum(a * x);
  std::printf("%s", dump(b).c_str());
  expect("three nodes", dump(b) ==
                            "%0 f32(2) = exp leaf1:f32\n"
                            "%1 f32(2) = mul %0:f32 leaf1:f32\n"
                            "%2 f32() = sum %1:f32\n");
  std::vector<Node*> order = reachable(b.impl()->autograd->node.get());
  expect("backward goes down the numbers",
         order[0]->sequence > order[1]->sequence && order[1]->sequence > order[2]->sequence);
  expect("exp saved its result, not its operand",
         order[2]->results[0].saved.storage && !order[2]->operands[0].saved.storage);
  expect("and that is the tensor itself", order[2]->results[0].saved.storage == a.impl()->storage);
  std::printf("%s", dump_dot(b).c_str());
  b.backward();
  expect("d(x e^x)/dx at 1 is 2e", std::fabs(value(x.grad(), 0) - 2 * std::exp(1.0)) < 1e-6);
  expect_error("the tape is used up", "retain_graph", [&] { b.backward(); });
}

void hooks() {
  Tensor x = tensor({1, 2}).set_requires_grad();
  Tensor y = x * 3.0;
  double seen = 0;
  HookHandle handle = y.register_hook([&](const Tensor& g) {
    seen = value(g, 0);
    return g * 0.5;
  });
  sum(y + y).backward();
  expect("a hook sees the whole gradient, 1 + 1", seen == 2);
  expect("and what it returns goes on: 2 * 0.5 * 3", value(x.grad(), 0) == 3);
  handle.remove();
}

/// Bytes of activations that the tape of eight layers holds, and the gradient of the first.
std::pair<size_t, std::vector<double>> eight_layers(bool recompute) {
  generator() = {1, 0};
  models::Sequential net;
  for (int i = 0; i < 8; ++i) {
    net.add<models::Linear>(64, 64);
    net.add([](const Tensor& v) { return dropout(gelu(v), {.p = 0.1}); });
  }
  Tensor x = ones({256, 64});
  size_t before = memory::stats().by_kind[size_t(MemoryKind::activations)].current;
  auto run = [&](const Tensor& v) { return net(v); };
  Tensor loss = mean(recompute ? autograd::checkpoint(run, x) : run(x));
  size_t held = memory::stats().by_kind[size_t(MemoryKind::activations)].current - before;
  loss.backward();
  return {held, net.parameters()[0].grad().to_vector()};
}

void recompute() {
  auto [kept, plain] = eight_layers(false);
  auto [less, again] = eight_layers(true);
  std::printf("       held for backward: %zu bytes, with checkpoint %zu\n", kept, less);
  expect("recompute keeps a twentieth at most", less * 20 < kept);
  expect("and gives the same bits, dropout included", plain == again);
}

void anomaly() {
  models::Sequential net;
  Tensor weight = net.add<models::Linear>(2, 2, false).weight;
  net.add([](const Tensor& v) { return log(v); });
  {
    NoGrad off;
    weight.fill_(-1);
  }
  autograd::Anomaly on(7);
  expect_error("anomaly mode stops at the first NaN and names op, module and step",
               "[log] NaN in result 0, in module 1, at step 7", [&] {
                 net(ones({1, 2}));
               });
  expect_error("in backward too", "[sqrt backward] Inf in the gradient of operand 0 'x'",
               [] { sqrt(zeros({}).set_requires_grad()).backward(); });
}

void second_derivative() {
  Tensor x = tensor({2}).set_requires_grad();
  sum(x * x * x).backward();
  Tensor g = x.grad();
  expect("the first is 3 x^2", g.item() == 12);
  expect_error("there is no second", "second derivative", [&] { sum(g * g).backward(); });
}

void several_threads() {
  Tensor w = ones({3}).set_requires_grad();
  double drawn[2];
  auto work = [&](size_t k) {
    manual_seed(derived_seed(1337, k));
    drawn[k] = sum(dropout(ones({64}), {.p = 0.5})).item();
    for (int i = 0; i < 100; ++i) sum(w * 2.0).backward();
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  expect("two threads add to one leaf, and nothing is lost", value(w.grad(), 0) == 400);
  expect("each draws numbers of its own", drawn[0] != drawn[1]);
  Tensor y = w * 2.0, loss = sum(y);
  y.register_hook([&](const Tensor&) {
    expect_error("a graph is gone through by one backward() at a time", "another backward()",
                 [&] { loss.backward(); });
    return Tensor();
  });
  loss.backward();
}

int main() {
  nodes();
  hooks();
  recompute();
  anomaly();
  second_derivative();
  several_threads();
}
