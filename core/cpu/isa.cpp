#include "minim/core/cpu/isa.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "minim/core/error.h"
#include "minim/core/per_isa.h"

namespace minim {

extern const IsaKernels kernels_base, kernels_v3, kernels_v4;
extern const PairKernels kernels_v4_bf16;

namespace {
#ifdef __clang__  // 14 knows features, not levels; processors with these have the rest of the level
bool has_v3() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"); }
bool has_v4() { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"); }
#else
bool has_v3() { return __builtin_cpu_supports("x86-64-v3"); }
bool has_v4() { return __builtin_cpu_supports("x86-64-v4"); }
#endif

const IsaKernels& with_pairs() {
  static const IsaKernels kernels = [] {
    IsaKernels k = kernels_v4;
    k.name = "v4-bf16";
    k.pairs = &kernels_v4_bf16;
    return k;
  }();
  return kernels;
}
}  // namespace

const IsaKernels* isa_at(int index) {
  switch (index) {
    case 0:
      return &kernels_base;
    case 1:
      return has_v3() ? &kernels_v3 : nullptr;
    case 2:
      return has_v4() ? &kernels_v4 : nullptr;
    case 3:
      return has_v4() && __builtin_cpu_supports("avx512bf16") ? &with_pairs() : nullptr;
  }
  fail("there are ", kIsas, " ISAs, and no number ", index);
}

namespace {

/// Whether pairs take less time than single numbers, to the same bits: about 30 us, once.
bool pairs_pay() {
  constexpr int64_t kDepth = 1024, kRounds = 5;
  const auto rows = kernels_v4.f32.rows, cols = kernels_v4.f32.cols;
  std::vector<float> a(size_t(rows * kDepth), 1.25f), b(size_t(cols * kDepth), -0.75f);
  std::vector<uint32_t> pairs_a(a.size() / 2, 0x3fa03fa0), pairs_b(b.size() / 2, 0xbf40bf40);
  std::vector<float> single(size_t(rows * cols)), paired(single.size());
  auto seconds = [](auto multiply) {
    const auto start = std::chrono::steady_clock::now();
    multiply();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double by_one = 1, by_two = 1;
  for (int64_t i = 0; i < kRounds; ++i) {
    by_one = std::min(by_one, seconds([&] {
                        kernels_v4.f32.multiply(rows, cols, kDepth, a.data(), b.data(),
                                                {single.data(), cols, false});
                      }));
    by_two = std::min(by_two, seconds([&] {
                        kernels_v4_bf16.multiply(rows, cols, kDepth / 2, pairs_a.data(),
                                                 pairs_b.data(), {paired.data(), cols, false});
                      }));
  }
  return by_two < 0.9 * by_one && single == paired;
}

const IsaKernels& choose() {
  const char* wanted = std::getenv("MINIM_ISA");
  constexpr std::string_view names[kIsas] = {"base", "v3", "v4", "v4-bf16"};
  for (int i = kIsas - 1; i >= 0; --i) {
    if (wanted && names[i] != wanted) continue;
    const IsaKernels* kernels = isa_at(i);
    if (kernels && (wanted || !kernels->pairs || pairs_pay())) return *kernels;
    if (wanted)
      fail("MINIM_ISA=", wanted, ", but this CPU has no x86-64-", wanted,
           "; unset it to use the best there is");
  }
  fail("MINIM_ISA=", wanted, " is not known; it may be base, v3, v4 or v4-bf16");
}

}  // namespace

const IsaKernels& isa() {
  static const IsaKernels& chosen = choose();
  return chosen;
}

int isa_level() { return isa().level; }

}  // namespace minim
