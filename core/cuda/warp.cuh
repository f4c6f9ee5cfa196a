// core/cuda/warp.cuh -- a Lane (core/rowwise.h) that is one warp, and the sum over broadcast axes
// made of it. Sums have the order of core/sum.h, so they give the CPU's bits, except that the CPU
// cuts a single sum of more than 65536 terms into parts.
#pragma once
#include "minim/core/cuda/strided.cuh"
#include "minim/core/sum.h"
#include "minim/core/wide.h"

namespace minim::cuda {

/// The value of the thread whose number differs in the bits of `other`.
template <class A>
__device__ A exchange(A value, int other) {
  return __shfl_xor_sync(0xffffffffu, value, other);
}
__device__ inline Extended exchange(Extended value, int other) {
  return {exchange(value.fraction(), other), exchange(value.exponent(), other)};
}

/// The 32 threads of a warp call every method together, with the same n. What each and once wrote,
/// all of them see afterwards.
struct WarpLane {
  Index n;

  static constexpr unsigned kAll = 0xffffffffu;
  static constexpr Index kWidth = 32;
  __device__ static Index thread() { return threadIdx.x % kWidth; }

  template <class F>
  __device__ void each(F f) const {
    for (Index j = thread(); j < n; j += kWidth) f(j);
    __syncwarp();
  }
  template <class F>
  __device__ void once(F f) const {
    if (thread() == 0) f();
    __syncwarp();
  }
  template <class F>
  __device__ bool any(F f) const {
    bool found = false;
    for (Index j = thread(); j < n; j += kWidth) found = found || f(j);
    return __any_sync(kAll, found);
  }
  /// Threads t and t + 16 both keep lane t % 16 of the sum.
  template <class A, class F>
  __device__ A sum(F f) const {
    const bool upper = thread() >= kLanes;
    A total = 0;
    for (Index begin = 0; begin < n; begin += kSumBlock) {
      const Index end = std::min(n, begin + kSumBlock);
      A part = 0;
      for (Index j = begin; j < end; j += kWidth) {
        const A mine = j + thread() < end ? A(f(j + thread())) : A(0);
        const A other = exchange(mine, int(kLanes));
        part += upper ? other : mine;
        part += upper ? mine : other;
      }
      total += part;
    }
    for (int o = kLanes / 2; o > 0; o /= 2) total += exchange(total, o);
    return total;
  }
  template <class A, class F>
  __device__ A max(F f) const {
    auto larger = [](A m, A v) { return v > m || v != v ? v : m; };
    A m = f(std::min(thread(), n - 1));
    for (Index j = thread() + kWidth; j < n; j += kWidth) m = larger(m, f(j));
    for (int o = kWidth / 2; o > 0; o /= 2) m = larger(m, exchange(m, int(o)));
    return m;
  }
  template <class F>
  __device__ Index first(F f) const {
    return n - max<Index>([=, this](Index j) { return f(j) ? n - j : Index{0}; });
  }
};

/// How many warps work on `count` rows, in whole blocks.
struct WarpGrid {
  static constexpr unsigned kWarps = 4, kThreads = kWarps * 32;
  unsigned blocks;
  /// @param most warps, because each needs memory.
  explicit WarpGrid(Index count, Index most = 1 << 16)
      : blocks(unsigned((std::clamp<Index>(most, 1, std::max<Index>(1, count)) + kWarps - 1) /
                        kWarps)) {}
  Index warps() const { return Index(blocks) * kWarps; }
};
__device__ inline Index warp() {
  return (Index(blockIdx.x) * blockDim.x + threadIdx.x) / WarpLane::kWidth;
}
__device__ inline Index warps() { return Index(gridDim.x) * blockDim.x / WarpLane::kWidth; }

template <class A>
__global__ void sum_to_kernel(const A* from, Strided source, Strided to, Rows rows) {
  for (Index o = warp(); o < rows.outer.numel; o += warps()) {
    const A* x = from + source.row(rows, o);
    const WarpLane lane{rows.inner.numel};
    const A sum = lane.sum<A>([&](Index r) { return x[source.along(rows, r)]; });
    lane.once([&] { store(to, to.row(rows, o), sum); });
  }
}

/// minim::sum_to on the device: a warp per result.
template <class A>
void sum_to(const A* from, const Shape& shape, const Arg& to, cudaStream_t stream) {
  const int shift = shape.rank() - to.shape.rank();
  uint32_t summed = 0;
  for (int i = 0; i < shape.rank(); ++i)
    if (i < shift || (to.shape[i - shift] == 1 && shape[i] != 1)) summed |= 1u << i;
  const Rows rows(shape, summed);
  if (rows.outer.numel == 0) return;
  const WarpGrid grid(rows.outer.numel);
  sum_to_kernel<<<grid.blocks, grid.kThreads, 0, stream>>>(
      from, Strided({}, contiguous_strides(shape), summed),
      Strided(to, broadcast_strides(to.shape, to.strides, shape), summed), rows);
  check(cudaGetLastError(), "sum over broadcast axes");
}

}  // namespace minim::cuda
