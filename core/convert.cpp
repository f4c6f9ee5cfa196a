#include "minim/core/convert.h"

#include <algorithm>
#include <cmath>

#include "minim/core/per_isa.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

template <class A>
constexpr A poison() {
  if constexpr (std::is_floating_point_v<A>)
    return std::numeric_limits<A>::quiet_NaN();
  else
    return std::numeric_limits<A>::min() / 3;
}

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
const A* load_run(const void* p, DType dtype, Index stride, Index n, A* buffer) {
  if (!p) {
    std::fill(buffer, buffer + n, poison<A>());
    return buffer;
  }
  return visit(dtype, [&](auto tag) -> const A* {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(p);
    if constexpr (std::is_same_v<T, A>)
      if (stride == 1) return from;
    if constexpr (std::is_same_v<A, float> && sizeof(T) == 2) {
      if (stride == 1) {
        (std::is_same_v<T, f16> ? isa().widen_f16 : isa().widen_bf16)(
            reinterpret_cast<const uint16_t*>(from), buffer, n);
        return buffer;
      }
    }
    load_loop(from, stride, n, buffer);
    return buffer;
  });
}

template <class A>
void store_run(void* p, DType dtype, Index stride, Index n, const A* values) {
  visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(p);
    if constexpr (std::is_same_v<T, A>) {
      if (static_cast<const A*>(p) == values) return;  // computed in place
      if (stride == 1) return std::copy(values, values + n, to), void();
    }
    if constexpr (std::is_same_v<A, float> && sizeof(T) == 2) {
      if (stride == 1)
        (std::is_same_v<T, f16> ? isa().narrow_f16 : isa().narrow_bf16)(
            values, reinterpret_cast<uint16_t*>(to), n);
      else
        store_loop(to, stride, n, values);
    } else
      store_loop(to, stride, n, values);
    if constexpr (sizeof(T) == 2)
      if (Probe* probe = Probe::current()) count_lost(*probe, p, stride, n, values);
  });
}

template const float* load_run(const void*, DType, Index, Index, float*);
template const double* load_run(const void*, DType, Index, Index, double*);
template const int64_t* load_run(const void*, DType, Index, Index, int64_t*);
template void store_run(void*, DType, Index, Index, const float*);
template void store_run(void*, DType, Index, Index, const double*);
template void store_run(void*, DType, Index, Index, const int64_t*);

}  // namespace minim
