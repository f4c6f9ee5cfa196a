// core/per_isa.h -- the inner loops of pointwise and rowwise ops, compiled once per instruction
// set and picked at run time. All of them add, multiply and round in the same order, without fma,
// so each gives the same bits.
#pragma once
#include <concepts>
#include <cstdint>

#include "minim/core/half.h"

namespace minim {

/// isa().level of core/cpu/isa.h, which few files need to see.
int isa_level();

// GCC inlines a baseline function into one with more features, but not into one of another
// architecture: so features are listed. Everything is inlined (flatten), so nothing that is
// compiled for a newer CPU can be called by the baseline.
#if defined(__x86_64__) && !defined(__CUDACC__)
template <class Loop, class... Args>
[[gnu::target("avx2,bmi,bmi2"), gnu::flatten]] void loop_v3(Args... args) {
  Loop::run(args...);
}
template <class Loop, class... Args>
#if defined(__clang__)
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,bmi,bmi2"), gnu::flatten]]
#else
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,bmi,bmi2,prefer-vector-width=512"),
  gnu::flatten]]
#endif
void loop_v4(Args... args) {
  Loop::run(args...);
}
#endif

/// Loop::run(args...), for the CPU at hand where A is float; f64, the reference, is compiled once.
template <class A, class Loop, class... Args>
void per_isa(Args... args) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  if constexpr (std::same_as<A, float>) {
    switch (isa_level()) {
      case 1:
        return loop_v3<Loop, Args...>(args...);
      case 2:
        return loop_v4<Loop, Args...>(args...);
    }
  }
#endif
  Loop::run(args...);
}

/// Calls f(0) ... f(n - 1), of floats with four vectors in flight: the compiler takes as many at a
/// time as a vector holds of the smallest type in the loop, so the loop also reads a byte of x.
template <class A, class F>
void many(int64_t n, [[maybe_unused]] const A* x, F f) {
  int64_t j = 0;
  if constexpr (std::same_as<A, float>) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(x);
    uint8_t read = 0;
    MINIM_IVDEP
    for (; j < (n & -64); ++j) f(j), read |= bytes[j];
    [[maybe_unused]] volatile uint8_t used = read;
  }
  MINIM_IVDEP
  for (; j < n; ++j) f(j);
}

}  // namespace minim
