#include "minim/core/convert.h"

#include <algorithm>
#include <array>

#include "minim/core/cpu/isa.h"
#include "minim/core/per_isa.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

template <class A>
constexpr A kPoison = std::is_floating_point_v<A> ? std::numeric_limits<A>::quiet_NaN()
                                                  : std::numeric_limits<A>::min() / 3;
template <class A>
constexpr auto kPoisoned = [] {
  std::array<A, 512> values{};
  values.fill(kPoison<A>);
  return values;
}();

template <class T, class A>
void load_loop(const T* p, Index stride, Index n, A* buffer) {
  if (stride == 1)
    for (Index i = 0; i < n; ++i) buffer[i] = convert_to<A>(p[i]);
  else if (stride == 0)
    std::fill(buffer, buffer + n, convert_to<A>(p[0]));
  else
    for (Index i = 0; i < n; ++i) buffer[i] = convert_to<A>(p[i * stride]);
}

template <class T, class A>
void store_loop(T* p, Index stride, Index n, const A* values) {
  if (stride == 1)
    for (Index i = 0; i < n; ++i) p[i] = convert_to<T>(values[i]);
  else
    for (Index i = 0; i < n; ++i) p[i * stride] = convert_to<T>(values[i]);
}

template <bool dense>  // where it is known, no gather is made
struct CountLost {
  template <class A>
  static void run(const uint16_t* stored, Index stride, Index n, const A* values, uint32_t* nonzero,
                  uint32_t* lost) {
    if (dense) stride = 1;
    uint32_t all = 0, gone = 0;
    for (Index i = 0; i < n; ++i) {
      const bool was = values[i] != A(0);
      all += was;
      gone += was & ((stored[i * stride] & 0x7fffu) == 0);
    }
    *nonzero = all, *lost = gone;
  }
};

template <class A>
void count_lost(Probe& probe, const void* p, Index stride, Index n, const A* values) {
  const auto* stored = static_cast<const uint16_t*>(p);
  constexpr Index kMost = Index(1) << 31;  // that the counters hold
  for (Index i = 0; i < n; i += kMost) {
    const Index m = std::min(kMost, n - i);
    uint32_t nonzero, lost;
    (stride == 1 ? per_isa<A, CountLost<true>, const uint16_t*, Index, Index, const A*, uint32_t*,
                           uint32_t*>
                 : CountLost<false>::template run<A>)(stored + i * stride, stride, m, values + i,
                                                      &nonzero, &lost);
    probe.stored_half(nonzero, lost);
  }
}

}  // namespace

template <class A>
const A* load_converted(const void* p, DType dtype, Index stride, Index n, A* buffer) {
  if (!p) {
    if (n <= Index(kPoisoned<A>.size())) return kPoisoned<A>.data();
    std::fill(buffer, buffer + n, kPoison<A>);
    return buffer;
  }
  if constexpr (std::is_same_v<A, float>)
    if (stride == 1 && is_half(dtype)) {
      const IsaKernels& kernels = isa();
      (dtype == DType::f16 ? kernels.widen_f16 : kernels.widen_bf16)(
          static_cast<const uint16_t*>(p), buffer, n);
      return buffer;
    }
  visit(dtype,
        [&]<class T>(detail::Tag<T>) { load_loop(static_cast<const T*>(p), stride, n, buffer); });
  return buffer;
}

template <class A>
void store_converted(void* p, DType dtype, Index stride, Index n, const A* values) {
  if (std::is_same_v<A, float> && stride == 1 && is_half(dtype)) {
    const IsaKernels& kernels = isa();
    (dtype == DType::f16 ? kernels.narrow_f16 : kernels.narrow_bf16)(
        reinterpret_cast<const float*>(values), static_cast<uint16_t*>(p), n);
  } else {
    visit(dtype,
          [&]<class T>(detail::Tag<T>) { store_loop(static_cast<T*>(p), stride, n, values); });
  }
  if (Probe* probe = Probe::current(); probe && is_half(dtype))
    count_lost(*probe, p, stride, n, values);
}

template const float* load_converted(const void*, DType, Index, Index, float*);
template const double* load_converted(const void*, DType, Index, Index, double*);
template const int64_t* load_converted(const void*, DType, Index, Index, int64_t*);
template void store_converted(void*, DType, Index, Index, const float*);
template void store_converted(void*, DType, Index, Index, const double*);
template void store_converted(void*, DType, Index, Index, const int64_t*);

}  // namespace minim
