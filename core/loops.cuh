// core/loops.cuh -- the pointwise kernels of loops.h on CUDA: one thread per element, the functor is the same function.
#pragma once
#include "minim/core/loops.h"

namespace minim::cuda {

/// A kernel's view of an Arg: strides are over the shape that the kernel runs on.
struct View {
  void* data;
  DType dtype;
  Index stride[kMaxRank];
};
struct Grid {
  Index size[kMaxRank];
  int rank;
  Index numel;
};

inline Grid grid_of(const Shape& shape) {
  Grid g{{}, shape.rank(), shape.numel()};
  for (int i = 0; i < shape.rank(); ++i) g.size[i] = shape[i];
  return g;
}
inline View view_of(const Arg& a, const Shape& shape) {
  View v{a.data, a.dtype, {}};
  if (!a.defined && !a.data) return v;
  Strides s = broadcast_strides(a.shape, a.strides, shape);
  for (int i = 0; i < shape.rank(); ++i) v.stride[i] = s[i];
  return v;
}

__device__ inline Index offset_of(const Grid& g, const View& v, Index i) {
  Index at = 0;
  for (int d = g.rank; d-- > 0; i /= g.size[d]) at += i % g.size[d] * v.stride[d];
  return at;
}

/// One element in the compute type; NaN where the operand was not saved.
template <class A>
__device__ inline A load(const View& v, Index at) {
  if (!v.data) return std::is_floating_point_v<A> ? A(nanf("")) : A(0);
  switch (v.dtype) {
    case DType::boolean: return A(static_cast<const bool*>(v.data)[at]);
    case DType::u8: return A(static_cast<const uint8_t*>(v.data)[at]);
    case DType::i32: return A(static_cast<const int32_t*>(v.data)[at]);
    case DType::i64: return A(static_cast<const int64_t*>(v.data)[at]);
    case DType::f16: return A(float(static_cast<const f16*>(v.data)[at]));
    case DType::bf16: return A(float(static_cast<const bf16*>(v.data)[at]));
    case DType::f32: return A(static_cast<const float*>(v.data)[at]);
    case DType::f64: break;
  }
  return A(static_cast<const double*>(v.data)[at]);
}

template <class A>
__device__ inline void store(const View& v, Index at, A value) {
  switch (v.dtype) {
    case DType::boolean: static_cast<bool*>(v.data)[at] = value != A(0); return;
    case DType::u8: static_cast<uint8_t*>(v.data)[at] = convert_to<uint8_t>(value); return;
    case DType::i32: static_cast<int32_t*>(v.data)[at] = convert_to<int32_t>(value); return;
    case DType::i64: static_cast<int64_t*>(v.data)[at] = convert_to<int64_t>(value); return;
    case DType::f16: static_cast<f16*>(v.data)[at] = convert_to<f16>(value); return;
    case DType::bf16: static_cast<bf16*>(v.data)[at] = convert_to<bf16>(value); return;
    case DType::f32: static_cast<float*>(v.data)[at] = float(value); return;
    case DType::f64: static_cast<double*>(v.data)[at] = double(value); return;
  }
}

template <class Op>
struct PointwiseArgs {
  Grid grid;
  View in[Op::arity], out, grad_out, grad_in[Op::arity];
  attrs_t<Op> attrs;
  RngKey rng;
};

template <class Op, class A>
__device__ inline void load_inputs(const PointwiseArgs<Op>& p, Index i, A* values) {
  for (size_t k = 0; k < Op::arity; ++k) values[k] = load<A>(p.in[k], offset_of(p.grid, p.in[k], i));
  if constexpr (Random<Op>) {
    auto four = Philox::block(p.rng.seed, p.rng.stream, uint64_t(i) / 4);
    uint32_t bits[4] = {four[0], four[1], four[2], four[3]};
    values[Op::arity] = A(uniform01(bits[i % 4]));
  }
}

template <class Op, class A>
__global__ void pointwise_forward_kernel(PointwiseArgs<Op> p) {
  Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.grid.numel) return;
  A values[kInputs<Op>];
  const A* x[kInputs<Op>];
  load_inputs<Op, A>(p, i, values);
  for (size_t k = 0; k < kInputs<Op>; ++k) x[k] = values + k;
  store(p.out, i, forward_at<Op, A>(p.attrs, x, 0, std::make_index_sequence<kInputs<Op>>{}));
}

template <class Op, class A>
__global__ void pointwise_backward_kernel(PointwiseArgs<Op> p) {
  Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.grid.numel) return;
  A values[kInputs<Op>], d[Op::arity];
  const A* x[kInputs<Op>];
  load_inputs<Op, A>(p, i, values);
  for (size_t k = 0; k < kInputs<Op>; ++k) x[k] = values + k;
  A g = load<A>(p.grad_out, offset_of(p.grid, p.grad_out, i)), y = load<A>(p.out, offset_of(p.grid, p.out, i));
  vjp_at<Op, A>(p.attrs, g, y, x, 0, d, std::make_index_sequence<kInputs<Op>>{});
  for (size_t k = 0; k < Op::arity; ++k)
    if (p.grad_in[k].data) store(p.grad_in[k], i, d[k]);
}

inline constexpr unsigned kThreads = 256;
inline unsigned blocks_for(Index n) { return unsigned((n + kThreads - 1) / kThreads); }

template <class Op, class A>
struct PointwiseForward {
  static void run(OpArgs& args) {
    const Shape& shape = args.out[0].shape;
    PointwiseArgs<Op> p{};
    p.grid = grid_of(shape);
    p.out = view_of(args.out[0], shape);
    for (size_t k = 0; k < Op::arity; ++k) p.in[k] = view_of(args.in[k], shape);
    p.attrs = args.attrs.as<attrs_t<Op>>();
    p.rng = args.rng;
    if (p.grid.numel > 0)
      pointwise_forward_kernel<Op, A><<<blocks_for(p.grid.numel), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(p);
  }
};

/// @throws Error for a broadcast operand: its gradient needs a sum over the grid, which only the CPU has.
template <class Op, class A>
struct PointwiseBackward {
  static void run(OpArgs& args) {
    const Shape& shape = args.grad_out[0].shape;
    PointwiseArgs<Op> p{};
    p.grid = grid_of(shape);
    p.out = view_of(args.out[0], shape);
    p.grad_out = view_of(args.grad_out[0], shape);
    for (size_t k = 0; k < Op::arity; ++k) {
      p.in[k] = view_of(args.in[k], shape);
      if (args.grad_in[k].data && !(args.in[k].shape == shape))
        fail("broadcast gradients are not summed on CUDA; expand the operand first");
      p.grad_in[k] = view_of(args.grad_in[k], shape);
    }
    p.attrs = args.attrs.as<attrs_t<Op>>();
    p.rng = args.rng;
    if (p.grid.numel > 0)
      pointwise_backward_kernel<Op, A><<<blocks_for(p.grid.numel), kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(p);
  }
};

}  // namespace minim::cuda
