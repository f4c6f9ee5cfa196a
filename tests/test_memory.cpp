#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "minim/amp/autocast.h"
#include "minim/core/parallel.h"
#include "minim/models/gpt.h"
#include "minim/models/language_model.h"
#include "minim/ops/composite.h"
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

// Sanitizers end the program instead, and keep no small blocks.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

/// Takes blocks of a size until there are no more, in a process of its own that may have 32 MB more
/// than it has: 0 when an Error says `text`, 1 when it says another, 2 for another exception.
int until_full(size_t bytes, const std::string& text) {
  const pid_t child = fork();
  if (child == 0) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = (pages << 12) + (32 << 20);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      for (;;) memory::allocate(bytes, MemoryKind::moments);
    } catch (const Error& e) {
      _exit(std::string_view(e.what()).starts_with(text) ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("no more memory is an Error with size and kind, for small blocks as for large ones") {
  CHECK(until_full(1024, "out of memory: 1024 bytes for moments (") == 0);
  CHECK(until_full(4096, "out of memory: 4096 bytes for moments (") == 0);
  CHECK(until_full(1 << 20, "out of memory: 1048576 bytes for moments (") == 0);
}

TEST_CASE("a request that fails while blocks of other sizes are idle gets their memory") {
  const pid_t child = fork();
  if (child == 0) {
    memory::empty_cache();
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = (pages << 12) + (64 << 20);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    try {
      for (const size_t size : {size_t{1} << 10, size_t{1} << 13, size_t{1} << 20}) {
        std::vector<void*> blocks;
        for (size_t all = 0; all < 40 << 20; all += size)
          blocks.push_back(memory::allocate(size, MemoryKind::data));
        for (void* p : blocks) memory::release(p, size, MemoryKind::data);
      }
      memory::allocate(40 << 20, MemoryKind::data);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE(
    "sizes that are not asked for any more do not stay: idle blocks are bounded by the peak") {
  const auto in_a_child = [](auto f) {  // the bound is of all that a process has had
    const pid_t child = fork();
    if (child == 0) {
      memory::empty_cache();
      f();
      const MemoryStats all = memory::stats();
      _exit(all.total.current + all.cached > all.most * 5 / 4 + (8 << 20) ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK(in_a_child([] {
          Tensor x = zeros({1000});
          while (x.numel() < 2'500'000) x = cat({x, zeros({x.numel() / 50 + 100})}, 0);
        }) == 0);
  CHECK(in_a_child([] {
          for (Index n = 1; n < 400; ++n) exp(zeros({n * 7919 % 397, 1 << 12}));
        }) == 0);
}

TEST_CASE("empty_cache gives back all large blocks and this thread's small ones") {
  { const Tensor large = zeros({1 << 16}), small = zeros({8}); }
  CHECK(memory::stats().cached > 4 << 16);
  memory::empty_cache();
  CHECK(memory::stats().cached == 0);
  size_t there = 0;
  std::thread([&] {
    { const Tensor small = zeros({8}); }
    there = memory::stats().cached;
    memory::empty_cache();
    CHECK(memory::stats().cached == 0);
  }).join();
  CHECK(there >= 64);
  CHECK(memory::stats().cached == 0);
}

TEST_CASE("a kernel's buffers stay with their thread, and count as scratch while they are in use") {
  const auto scratch = [] { return memory::stats().by_kind[size_t(MemoryKind::scratch)]; };
  constexpr size_t kLarge = 96 << 10, kMiddle = 64 << 10;
  memory::empty_cache();
  const size_t before = scratch().current;
  const std::byte* first;
  {
    const Scratch<std::byte> large(kLarge);
    first = large.data();
    CHECK(scratch().current == before + kLarge);
  }
  CHECK(scratch().current == before);
  CHECK(memory::stats().cached == kLarge);
  memory::reset_peak();
  {
    const Scratch<std::byte> a(kMiddle);  // in the kept one
    CHECK(a.data() == first);
    const Scratch<std::byte> b(kMiddle), small(64);
    std::thread([&] { const Scratch<std::byte> there(kMiddle); }).join();
  }
  CHECK(scratch().current == before);
  CHECK(scratch().peak >= before + 2 * kMiddle);
  CHECK(scratch().peak <= before + 3 * kMiddle + 64);
  {
    std::vector<std::unique_ptr<Scratch<std::byte>>> many;  // more than a thread keeps
    for (int i = 0; i < 12; ++i) many.push_back(std::make_unique<Scratch<std::byte>>(kMiddle));
    CHECK(scratch().current == before + 12 * kMiddle);
    std::swap(many[0], many[11]);  // in any order
  }
  CHECK(scratch().current == before);
  memory::empty_cache();
  CHECK(memory::stats().cached == 0);
}

TEST_CASE("a buffer that a thread asks for as it ends is given back too") {
  static constexpr size_t kMiddle = 64 << 10;
  struct Late {
    std::unique_ptr<Scratch<std::byte>> held;
    ~Late() { held.reset(), Scratch<std::byte>(kMiddle); }
  };
  memory::empty_cache();
  const size_t before = memory::stats().total.current;
  std::thread([] {
    static thread_local Late late;
    (void)&late;  // made before the thread has kept a buffer, so it ends after those
    late.held = std::make_unique<Scratch<std::byte>>(kMiddle);
  }).join();
  CHECK(memory::stats().cached == kMiddle);
  CHECK(memory::stats().total.current == before);
  memory::empty_cache();
}

TEST_CASE("the peak counts a kernel's buffers with what there was at that time, and only with it") {
  constexpr size_t kLarge = 1 << 20;
  const auto peak_of = [](auto f) {
    memory::reset_peak();
    const size_t before = memory::stats().total.current;
    f();
    return memory::stats().total.peak - before;
  };
  const auto buffer = [] { const Scratch<std::byte> there(kLarge); };
  const auto block = [](auto during) {
    void* p = memory::allocate(kLarge, MemoryKind::activations);
    during();
    memory::release(p, kLarge, MemoryKind::activations);
  };
  CHECK(peak_of([&] { block(buffer); }) == 2 * kLarge);
  CHECK(peak_of([&] { buffer(), block([] {}); }) == kLarge);
  CHECK(peak_of([&] { block([] {}), buffer(); }) == kLarge);
  CHECK(peak_of([&] { std::thread(buffer).join(); }) == kLarge);  // it is not there any more
}
#endif

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

TEST_CASE("a product of few rows packs a large matrix once whatever the number of threads") {
  const int threads_before = threads();
  set_threads(5);
  const Tensor a = ones({16, 1024}), b = ones({1024, 1024});
  memory::reset_peak();
  const size_t before = memory::stats().total.current;
  for (int round = 0; round < 30; ++round) matmul(a, b);
  CHECK(memory::stats().total.peak - before < 2 * 1024 * 1024 * sizeof(float));
  set_threads(threads_before);
}
