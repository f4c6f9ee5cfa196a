// core/cuda/strided.cuh -- how a kernel reaches the elements of an Arg, in the compute type, and
// the memory and error checks that launches need. A kernel numbers elements by outer axes (rows)
// and inner axes (along a row); a pointwise kernel has outer axes only.
#pragma once
#include <cuda_runtime.h>

#include "minim/core/convert.h"
#include "minim/core/op_args.h"

namespace minim::cuda {

/// Axes in row-major order.
struct Grid {
  int rank = 0;
  Index numel = 1;
  Index size[kMaxRank] = {};

  void add(Index n) {
    size[rank++] = n;
    numel *= n;
  }
  /// Where element i lies, by the strides of these axes.
  __device__ Index offset(const Index* stride, Index i) const {
    Index at = 0;
    for (int d = rank; i > 0 && d-- > 0; i /= size[d]) at += i % size[d] * stride[d];
    return at;
  }
};

struct Rows {
  Grid outer, inner;
  Rows() = default;
  /// @param mask the inner axes, as bits.
  explicit Rows(const Shape& shape, uint32_t mask = 0) {
    for (int i = 0; i < shape.rank(); ++i) (mask >> i & 1 ? inner : outer).add(shape[i]);
  }
};

struct Strided {
  void* data = nullptr;
  DType dtype = DType::f32;
  Index stride[kMaxRank] = {};  ///< outer axes first

  Strided() = default;
  /// @param strides over the shape that was split by `mask`.
  Strided(const Arg& arg, const Strides& strides, uint32_t mask = 0)
      : data(arg.data), dtype(arg.dtype) {
    int at = 0;
    for (bool inner : {false, true})
      for (int i = 0; i < strides.rank(); ++i)
        if ((mask >> i & 1) == inner) stride[at++] = strides[i];
  }

  __device__ Index row(const Rows& rows, Index r) const { return rows.outer.offset(stride, r); }
  __device__ Index along(const Rows& rows, Index j) const {
    return rows.inner.offset(stride + rows.outer.rank, j);
  }
};

/// One element in the compute type; NaN where the operand was not saved.
template <class A>
__device__ A load(const Strided& from, Index at) {
  if (!from.data) return std::numeric_limits<A>::quiet_NaN();
  return visit(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return convert_to<A>(static_cast<const T*>(from.data)[at]);
  });
}

template <class A>
__device__ void store(const Strided& to, Index at, A value) {
  visit(to.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(to.data)[at] = convert_to<T>(value);
  });
}

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail("CUDA: ", what, ": ", cudaGetErrorString(status));
}

inline cudaStream_t stream_of(const OpArgs& args) { return static_cast<cudaStream_t>(args.stream); }

/// A kernel's temporary memory, ordered in the stream.
template <class T>
class StreamBuffer {
 public:
  StreamBuffer(Index n, cudaStream_t stream) : stream_(stream) {
    if (n > 0) check(cudaMallocAsync(&p_, size_t(n) * sizeof(T), stream), "temporary memory");
  }
  ~StreamBuffer() {
    if (p_) cudaFreeAsync(p_, stream_);
  }
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;
  T* data() const { return static_cast<T*>(p_); }

 private:
  void* p_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace minim::cuda
