#include "minim/core/cpu/isa.h"

#include <cstdlib>
#include <string_view>

#include "minim/core/error.h"

namespace minim {

extern const IsaKernels kernels_base, kernels_v3, kernels_v4;

namespace {
#ifdef __clang__  // 14 knows features, not levels; processors with these have the rest of the level
bool has_v3() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"); }
bool has_v4() { return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"); }
#else
bool has_v3() { return __builtin_cpu_supports("x86-64-v3"); }
bool has_v4() { return __builtin_cpu_supports("x86-64-v4"); }
#endif
}  // namespace

const IsaKernels* isa_at(int index) {
  switch (index) {
    case 0:
      return &kernels_base;
    case 1:
      return has_v3() ? &kernels_v3 : nullptr;
    case 2:
      return has_v4() ? &kernels_v4 : nullptr;
  }
  fail("there are ", kIsas, " ISAs, and no number ", index);
}

namespace {

const IsaKernels& choose() {
  const char* wanted = std::getenv("MINIM_ISA");
  constexpr std::string_view names[kIsas] = {"base", "v3", "v4"};
  for (int i = kIsas - 1; i >= 0; --i) {
    if (wanted && names[i] != wanted) continue;
    if (const IsaKernels* kernels = isa_at(i)) return *kernels;
    if (wanted)
      fail("MINIM_ISA=", wanted, ", but this CPU has no x86-64-", wanted,
           "; unset it to use the best there is");
  }
  fail("MINIM_ISA=", wanted, " is not known; it may be base, v3 or v4");
}

}  // namespace

const IsaKernels& isa() {
  static const IsaKernels& chosen = choose();
  return chosen;
}

}  // namespace minim
