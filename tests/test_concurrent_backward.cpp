#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <optional>
#include <thread>

#include "minim/autograd/checkpoint.h"
#include "minim/autograd/node.h"
#include "minim/ops/composite.h"
#include "minim/tests/messages.h"

using namespace minim;
using test::check_says;
using test::error_of;

namespace {

using Values = std::vector<double>;

Tensor leaf(const Shape& shape, double v) { return full(shape, v).set_requires_grad(); }

/// Calls f(number) on n threads, all at once.
void at_once(int n, const std::function<void(int)>& f) {
  std::barrier start(n);
  std::vector<std::thread> all;
  for (int k = 0; k < n; ++k)
    all.emplace_back([&, k] {
      start.arrive_and_wait();
      f(k);
    });
  for (std::thread& t : all) t.join();
}

}  // namespace

TEST_CASE("backwards of several threads into one leaf lose no addend") {
  constexpr int kThreads = 3, kTimes = 4, kRounds = 200;
  const Index n = 4000;
  const Tensor w = leaf({n}, 1), hooked = leaf({n}, 1);
  hooked.register_hook([](const Tensor& g) { return g * 2.0; });
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const Tensor& x : {w, hooked}) x.set_grad({});
    std::vector<Tensor> losses;
    for (int k = 0; k < kThreads * kTimes; ++k) losses.push_back(sum(w * 3.0 + hooked));
    at_once(kThreads, [&](int k) {
      for (int i = 0; i < kTimes; ++i) losses[size_t(k * kTimes + i)].backward();
    });
    wrong += w.grad().to_vector() != Values(size_t(n), 3 * kThreads * kTimes);
    wrong += hooked.grad().to_vector() != Values(size_t(n), 2 * kThreads * kTimes);
  }
  CHECK(wrong == 0);
}

TEST_CASE("one thread at a time adds to a leaf's gradient") {
  const Tensor w = leaf({3}, 1), loss = sum(w * 3.0);
  std::atomic<bool> added{false};
  std::optional<LeafLock> mine(std::in_place, *w.impl()->autograd);
  std::thread other([&] {
    loss.backward();
    added = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!added);
  mine.reset();
  other.join();
  CHECK(w.grad().to_vector() == Values(3, 3));
}

TEST_CASE("a gradient that is read while another thread adds to it is a whole sum") {
  const Tensor w = leaf({4099}, 1);
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, changed{0};
  std::thread reader([&] {
    while (!done) {
      const Tensor g = w.grad();
      if (!g.defined()) continue;
      const Values first = g.to_vector();
      torn += first.front() != first.back();
      changed += g.to_vector() != first;
    }
  });
  for (int i = 0; i < 300; ++i) sum(w * 1.0).backward();
  done = true;
  reader.join();
  CHECK(torn == 0);
  CHECK(changed == 0);
  CHECK(w.grad().to_vector() == Values(4099, 300));
}

TEST_CASE("two backwards at once through one graph: the second is refused, and says why") {
  const Tensor w = leaf({3}, 2);
  const Tensor trunk = exp(w);
  std::atomic<int> refused{0}, odd{0};
  Tensor y[] = {sum(trunk * 2.0), sum(trunk * 3.0)};
  std::barrier inside(2);
  // Each waits until both are under way; whoever is refused waits too.
  const HookHandle wait = trunk.register_hook([&](const Tensor&) {
    inside.arrive_and_wait();
    return Tensor();
  });
  at_once(2, [&](int k) {
    try {
      y[k].backward(true);
    } catch (const Error& e) {
      ++refused;
      odd += std::string(e.what()).find("another backward()") == std::string::npos;
      inside.arrive_and_wait();
    }
  });
  CHECK(refused == 1);
  CHECK(odd == 0);
  const double slope = w.grad().to_vector()[0] / std::exp(2.0);
  CHECK((std::fabs(slope - 2) < 1e-5 || std::fabs(slope - 3) < 1e-5));
  wait.remove();
  w.set_grad({});
  y[0].backward(true);  // the graph is free again
  y[1].backward(true);
  CHECK(w.grad().to_vector()[0] == doctest::Approx(5 * std::exp(2.0)));
}

TEST_CASE("a hook may not go backward through the graph that is being gone through") {
  const Tensor w = leaf({2}, 3);
  const Tensor y = w * 2.0, loss = sum(y * y);
  std::string e;
  const HookHandle again = y.register_hook([&](const Tensor& g) {
    e = error_of([&] { loss.backward(true); });
    return g;
  });
  loss.backward(true);
  check_says(e, {"another backward()", "hook"});
  CHECK(w.grad().to_vector() == Values{24, 24});
  again.remove();
  w.set_grad({});
  const Tensor v = leaf({1}, 5);  // another graph may be gone through
  y.register_hook([&](const Tensor&) {
    GradScope recording(true);
    sum(v * v).backward();
    return Tensor();
  });
  loss.backward();
  CHECK(w.grad().to_vector() == Values{24, 24});
  CHECK(v.grad().item() == 10);
}

TEST_CASE("a hook may drop the loss that is being gone through") {
  const Tensor w = leaf({2}, 3);
  Tensor y = w * 2.0, loss = sum(exp(y * 0.0));
  y.register_hook([&](const Tensor&) {
    loss = y = {};
    return Tensor();
  });
  loss.backward();
  CHECK(w.grad().to_vector() == Values{0, 0});
}

TEST_CASE("recomputed graphs of two threads share their weights") {
  const Tensor w = leaf({64}, 0.5);
  const auto f = [&](const Tensor& v) { return exp(v * w) * w; };
  at_once(2, [&](int) {
    for (int i = 0; i < 100; ++i) sum(autograd::checkpoint(f, zeros({64}))).backward();
  });
  CHECK(w.grad().to_vector() == Values(64, 200));
}

TEST_CASE("graphs that share what they were made from are freed by two threads at once") {
  for (int i = 0; i < 200; ++i) {
    Tensor trunk = leaf({1}, 1);
    for (int k = 0; k < 50; ++k) trunk = trunk + 1.0;
    Tensor ends[] = {trunk * 1.0, trunk * 2.0};
    trunk = {};
    at_once(2, [&](int k) { ends[k] = {}; });
  }
}
