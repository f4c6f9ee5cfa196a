// What the machine can do at most: fp32 multiply-adds, copying memory, and telling another thread.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "minim/core/cores.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/tools/bench.h"

namespace minim::bench {
namespace {

// A round is one multiply-add on each of 12 registers, more chains than their latency needs, of
// 4 << level numbers each (Isa::level).
constexpr double flops_of(int level) { return 12 * 2 * double(4 << level); }

#if defined(__x86_64__)
// In assembler, since a compiler merges accumulators that hold the same numbers. The baseline has
// no fused one: a product, then a sum.
template <int level>
void rounds(int64_t n) {
  asm volatile(
      ".irp r,0,1,4,5,6,7,8,9,10,11,12,13,14,15\n"
      " .if %c1\n vxorps %%xmm\\r,%%xmm\\r,%%xmm\\r\n .else\n xorps %%xmm\\r,%%xmm\\r\n .endif\n"
      ".endr\n"
      "1:\n .irp r,4,5,6,7,8,9,10,11,12,13,14,15\n"
      " .if %c1 == 2\n vfmadd231ps %%zmm0,%%zmm1,%%zmm\\r\n"
      " .elseif %c1 == 1\n vfmadd231ps %%ymm0,%%ymm1,%%ymm\\r\n"
      " .else\n mulps %%xmm0,%%xmm\\r\n addps %%xmm1,%%xmm\\r\n .endif\n"
      ".endr\n"
      "dec %0\n jnz 1b\n .if %c1\n vzeroupper\n .endif\n"
      : "+r"(n)
      : "i"(level)
      : "cc", "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
// What the compiler makes of them: numbers and factor are unknown to it.
template <int level>
void rounds(int64_t n) {
  float x[12 * (4 << level)];
  volatile float unknown = 0.5f;
  const float factor = unknown, term = unknown;
  for (float& v : x) v = unknown;
  for (; n > 0; --n)
    for (float& v : x) v = v * factor + term;
  for (float v : x) unknown = v;
}
#endif
constexpr void (*kRounds[])(int64_t) = {rounds<0>, rounds<1>, rounds<2>};  // by Isa::level

Body multiply_adds(int threads) {
  constexpr int64_t kCount = 100000;
  const int level = isa().level;
  return {.run = [run = kRounds[level],
                  threads] { parallel_for(threads, 1, [&](int64_t, int64_t) { run(kCount); }); },
          .flops = flops_of(level) * kCount * threads};
}

/// @param bytes read, and written
Body copy(Index bytes) {
  Tensor from = ones({bytes}, DType::u8), to = ones({bytes}, DType::u8);
  auto run = [from, to, bytes] {
    parallel_for(bytes, 1 << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to.data()) + begin,
                  static_cast<const char*>(from.data()) + begin, size_t(end - begin));
    });
  };
  return {.run = run, .bytes = 2.0 * double(bytes)};
}

/// A thread that answers each word, in a cache line of its own.
struct Echo {
  uint64_t sent = 0;
  alignas(64) std::atomic<uint64_t> word{0};
  alignas(64) std::atomic<uint64_t> answer{0};
  std::jthread thread{[this](std::stop_token stop) {
    for (uint64_t last = 0; !stop.stop_requested();)
      if (const uint64_t w = word.load(std::memory_order_acquire); w != last)
        answer.store(last = w, std::memory_order_release);
  }};
};
Body round_trip() {
  return {.run = [echo = std::make_shared<Echo>()] {
    echo->word.store(++echo->sent, std::memory_order_release);
    while (echo->answer.load(std::memory_order_acquire) != echo->sent) {
    }
  }};
}

}  // namespace

std::vector<Set> ceiling_sets(int threads) {
  std::vector<Set> sets;
  const auto add = [&](const char* name, int n, std::function<Body()> prepare) {
    sets.push_back({{name + std::string("/t") + std::to_string(n), n, std::move(prepare), true}});
  };
  for (int n : {1, threads}) {
    if (n == 1 && !sets.empty()) break;
    add("ceilings/multiply-adds", n, [n] { return multiply_adds(n); });
    add("ceilings/copy of 256 MB", n, [] { return copy(Index(128) << 20); });
    add("ceilings/copy of 24 MB", n, [] { return copy(Index(12) << 20); });
  }
  if (threads > 1 && cores().usable() > 1)
    sets.push_back({{"ceilings/word to another thread and back/t2", 2, round_trip}});
  return sets;
}

}  // namespace minim::bench
