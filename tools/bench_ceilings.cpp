// What the machine can do at most: fp32 multiply-adds, and copying memory.
#include <cstring>

#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/tools/bench.h"

namespace minim::bench {
namespace {

// A round is one multiply-add on each of 12 registers, more chains than their latency needs. In
// assembler, since a compiler merges accumulators that hold the same numbers.
void rounds_v4(int64_t n) {
  asm volatile(
      ".irp r,0,1,4,5,6,7,8,9,10,11,12,13,14,15\n vpxord %%zmm\\r,%%zmm\\r,%%zmm\\r\n .endr\n"
      "1:\n .irp r,4,5,6,7,8,9,10,11,12,13,14,15\n vfmadd231ps %%zmm0,%%zmm1,%%zmm\\r\n .endr\n"
      "dec %0\n jnz 1b\n vzeroupper\n"
      : "+r"(n)
      :
      : "cc", "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15");
}
void rounds_v3(int64_t n) {
  asm volatile(
      ".irp r,0,1,4,5,6,7,8,9,10,11,12,13,14,15\n vxorps %%ymm\\r,%%ymm\\r,%%ymm\\r\n .endr\n"
      "1:\n .irp r,4,5,6,7,8,9,10,11,12,13,14,15\n vfmadd231ps %%ymm0,%%ymm1,%%ymm\\r\n .endr\n"
      "dec %0\n jnz 1b\n vzeroupper\n"
      : "+r"(n)
      :
      : "cc", "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15");
}
/// Baseline x86-64 has no fused one: a product, then a sum.
void rounds_base(int64_t n) {
  asm volatile(
      ".irp r,0,1,4,5,6,7,8,9,10,11,12,13,14,15\n xorps %%xmm\\r,%%xmm\\r\n .endr\n"
      "1:\n .irp r,4,5,6,7,8,9,10,11,12,13,14,15\n mulps %%xmm0,%%xmm\\r\n addps %%xmm1,%%xmm\\r\n"
      " .endr\n dec %0\n jnz 1b\n"
      : "+r"(n)
      :
      : "cc", "xmm0", "xmm1", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
        "xmm12", "xmm13", "xmm14", "xmm15");
}

struct Rounds {
  void (*run)(int64_t n);
  double flops;  // of one round
};
constexpr Rounds kRounds[] = {
    {rounds_base, 12 * 2 * 4}, {rounds_v3, 12 * 2 * 8}, {rounds_v4, 12 * 2 * 16}};  // by Isa::level

Body multiply_adds(int threads) {
  constexpr int64_t kCount = 100000;
  const Rounds& rounds = kRounds[isa().level];
  return {
      .run = [&rounds,
              threads] { parallel_for(threads, 1, [&](int64_t, int64_t) { rounds.run(kCount); }); },
      .flops = rounds.flops * kCount * threads};
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
  return sets;
}

}  // namespace minim::bench
