// core/op_args.h -- what every kernel is given, forward or backward, on every device: one struct.
#pragma once
#include <cstring>
#include <new>

#include "minim/core/device.h"
#include "minim/core/promotion.h"
#include "minim/core/shape.h"

namespace minim {

inline constexpr int kMaxOperands = 8, kMaxOutputs = 4;

/// One operand, output or gradient. data is null where it is absent, not needed or not saved.
struct Arg {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  bool defined = false;  ///< an optional operand that the caller gave
  Device device{};
};

/// The counters that an op's random numbers start from; element i uses draw offset + i of the
/// stream.
struct RngKey {
  uint64_t seed = 0, stream = 0;
};

/// An op's attributes, by value: any trivially copyable struct of at most 96 bytes.
class Attrs {
 public:
  Attrs() = default;
  template <class T>
  requires std::is_trivially_copyable_v<T>
  explicit Attrs(const T& value) {
    static_assert(sizeof(T) <= sizeof bytes_);
    std::memcpy(bytes_, &value, sizeof(T));
  }
  template <class T>
  const T& as() const {
    return *std::launder(reinterpret_cast<const T*>(bytes_));
  }

 private:
  alignas(8) std::byte bytes_[96];
};

struct OpArgs {
  OpArgs() : OpArgs(kMaxOperands, kMaxOutputs) { n_in = n_out = 0; }
  /// With that many; the rest of the arrays is not made, which would take longer than a small op.
  OpArgs(int inputs, int outputs) : n_in(inputs), n_out(outputs) {
    for (int k = 0; k < n_in; ++k) new (&in[k]) Arg, new (&grad_in[k]) Arg;
    for (int k = 0; k < n_out; ++k) new (&out[k]) Arg, new (&grad_out[k]) Arg;
  }
  int n_in, n_out;
  union {
    Arg in[kMaxOperands];
  };
  union {
    Arg out[kMaxOutputs];
  };
  // Backward only: a null grad_in is not wanted, a null grad_out is 0.
  union {
    Arg grad_out[kMaxOutputs];
  };
  union {
    Arg grad_in[kMaxOperands];
  };
  DType dtype =
      DType::f32;  ///< what the policy and promotion chose; kernels compute in compute_in(dtype)
  Attrs attrs;
  RngKey rng;
  void* stream = nullptr;  ///< a cudaStream_t on CUDA
};

using Kernel = void (*)(OpArgs&);

// What the device of the arguments does (core/backend.h).

/// To the same shape, from any dtype and strides, with one rounding; also from one device to
/// another.
void copy(const Arg& from, const Arg& to);
/// Sums over the axes along which `to` was broadcast, divides by `by`, rounds once.
void sum_to(const Arg& from, const Arg& to, Index by = 1);
void fill_zero(const Arg& to);

/// In the host's memory: sums `from` over the axes along which `to` was broadcast, in the compute
/// type A and a fixed order, divides by `by` and rounds once; where sums on the way leave A, in
/// Wider<A>. `from` is dense with elements A and the broadcast shape.
template <class A>
void sum_to(const A* from, const Shape& shape, const Arg& to, Index by = 1);

}  // namespace minim
