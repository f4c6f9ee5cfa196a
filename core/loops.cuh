// core/loops.cuh -- the pointwise kernels of loops.h on CUDA: one thread per element, the functor
// is the same function.
#pragma once
#include "minim/core/cuda/warp.cuh"
#include "minim/core/loops.h"

namespace minim::cuda {

template <class Op>
struct PointwiseArgs {
  Rows rows;
  Strided in[kOperands<Op>], out, grad_out, grad_in[kOperands<Op>];
  attrs_t<Op> attrs;
  RngKey rng;
};

inline Strided broadcast_view(const Arg& arg, const Shape& shape) {
  return Strided(arg, broadcast_strides(arg.shape, arg.strides, shape));
}

/// All but the gradients.
template <class Op>
PointwiseArgs<Op> pointwise_args(const OpArgs& args, const Shape& shape) {
  PointwiseArgs<Op> p{};
  p.rows = Rows(shape);
  for (size_t k = 0; k < kOperands<Op>; ++k) p.in[k] = broadcast_view(args.in[k], shape);
  if (args.out[0].data) p.out = broadcast_view(args.out[0], shape);
  p.attrs = args.attrs.as<attrs_t<Op>>();
  p.rng = args.rng;
  return p;
}

/// What the functor takes for element i: its operands and, if it is random, the draw.
template <class Op, class A>
struct Inputs {
  A values[kInputs<Op>];
  const A* x[kInputs<Op>];
  __device__ Inputs(const PointwiseArgs<Op>& p, Index i) {
    for (size_t k = 0; k < kOperands<Op>; ++k) values[k] = load<A>(p.in[k], p.in[k].row(p.rows, i));
    if constexpr (Op::spec.random)
      values[kOperands<Op>] =
          A(uniform01(Philox::block(p.rng.seed, p.rng.stream, uint64_t(i) / 4)[size_t(i % 4)]));
    for (size_t k = 0; k < kInputs<Op>; ++k) x[k] = values + k;
  }
};

__device__ inline Index element() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }

template <class Op, class A>
__global__ void pointwise_forward_kernel(PointwiseArgs<Op> p) {
  const Index i = element();
  if (i >= p.rows.outer.numel) return;
  const Inputs<Op, A> in(p, i);
  const A y = forward_at<Op, A>(p.attrs, in.x, 0, std::make_index_sequence<kInputs<Op>>{});
  store(p.out, p.out.row(p.rows, i), y);
}

template <class Op, class A>
__global__ void pointwise_backward_kernel(PointwiseArgs<Op> p) {
  const Index i = element();
  if (i >= p.rows.outer.numel) return;
  const Inputs<Op, A> in(p, i);
  const A g = load<A>(p.grad_out, p.grad_out.row(p.rows, i));
  const A y = load<A>(p.out, p.out.row(p.rows, i));
  A d[kOperands<Op>];
  vjp_at<Op, A>(p.attrs, g, y, in.x, 0, d, std::make_index_sequence<kInputs<Op>>{});
  for (size_t k = 0; k < kOperands<Op>; ++k)
    if (p.grad_in[k].data) store(p.grad_in[k], p.grad_in[k].row(p.rows, i), d[k]);
}

inline constexpr unsigned kThreads = 256;
inline unsigned blocks_for(Index n) { return unsigned((n + kThreads - 1) / kThreads); }

template <class Op, class A>
struct PointwiseForward {
  static void run(OpArgs& args) {
    const PointwiseArgs<Op> p = pointwise_args<Op>(args, args.out[0].shape);
    const Index n = p.rows.outer.numel;
    if (n == 0) return;
    pointwise_forward_kernel<Op, A><<<blocks_for(n), kThreads, 0, stream_of(args)>>>(p);
    check(cudaGetLastError(), "forward of a pointwise op");
  }
};

/// A gradient whose operand was broadcast is first written at full size, in A, and summed at the
/// end, as on the CPU.
template <class Op, class A>
void pointwise_backward(OpArgs& args) {
  const Shape& shape = args.grad_out[0].shape;
  const cudaStream_t stream = stream_of(args);
  PointwiseArgs<Op> p = pointwise_args<Op>(args, shape);
  p.grad_out = broadcast_view(args.grad_out[0], shape);
  std::unique_ptr<StreamBuffer<A>> full[kOperands<Op>];
  for (size_t k = 0; k < kOperands<Op>; ++k) {
    Arg to = args.grad_in[k];
    if (!to.data) continue;
    if (!(args.in[k].shape == shape)) {
      full[k] = std::make_unique<StreamBuffer<A>>(shape.numel(), stream);
      to = Arg{full[k]->data(), dtype_for<A>(), shape, contiguous_strides(shape), true};
    }
    p.grad_in[k] = broadcast_view(to, shape);
  }
  if (const Index n = p.rows.outer.numel; n > 0) {
    pointwise_backward_kernel<Op, A><<<blocks_for(n), kThreads, 0, stream>>>(p);
    check(cudaGetLastError(), "backward of a pointwise op");
  }
  for (size_t k = 0; k < kOperands<Op>; ++k)
    if (full[k]) sum_to(full[k]->data(), shape, args.grad_in[k], stream);
}

template <class Op, class A>
struct PointwiseBackward {
  static void run(OpArgs& args) {
    if constexpr (!std::is_same_v<A, int64_t>) pointwise_backward<Op, A>(args);
  }
};

}  // namespace minim::cuda
