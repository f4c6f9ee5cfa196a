#include "minim/core/denormals.h"

#include <atomic>
#include <type_traits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "minim/core/parallel.h"

namespace minim {
namespace {

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 1, uint8_t,
                       std::conditional_t<sizeof(T) == 2, uint16_t,
                                          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

/// @tparam U the bits of an element, of which `stored` are the significand's
template <class U>
Index count_below_normal(const U* x, int stored, Index n) {
  const U magnitude = U(U(~U{0}) >> 1), normal = U(U{1} << stored);
  Index found = 0;
  for (Index i = 0; i < n; ++i) found += (x[i] & magnitude) != 0 && (x[i] & magnitude) < normal;
  return found;
}

}  // namespace

bool denormals_kept() {
  volatile float least = 0x1p-126f;
  volatile float half = least * 0.5f;
  return half != 0.0f && half * 2.0f == least;
}

int64_t count_denormals(const void* data, DType dtype, Index n) {
  constexpr Index kGrain = 1 << 16;
  const int stored = info(dtype).digits - 1;
  std::atomic<int64_t> found{0};
  visit(dtype, [&]<class T>(detail::Tag<T>) {
    const auto* x = static_cast<const Bits<T>*>(data);
    parallel_for(n, kGrain, [&](Index begin, Index end) {
      found += count_below_normal(x + begin, stored, end - begin);
    });
  });
  return found;
}

#if defined(__x86_64__)
FloatMode FloatMode::current() {
  FloatMode mode;
  mode.bits_ = _mm_getcsr();
  return mode;
}
void FloatMode::apply() const { _mm_setcsr(bits_); }
#else
FloatMode FloatMode::current() { return {}; }
void FloatMode::apply() const {}
#endif

}  // namespace minim
