// core/rowwise.cuh -- the rowwise kernels of rowwise.h on CUDA: a lane is a warp. Each warp stages
// the rows that a functor sees in the compute type, in memory of its own, and takes one row after
// another.
#pragma once
#include <memory>

#include "minim/core/cuda/warp.cuh"
#include "minim/core/rowwise.h"

namespace minim::cuda {

/// One operand, output or gradient.
struct RowArg {
  Strided at;
  bool given = false, each = false;

  RowArg() = default;
  RowArg(const Arg& arg, Along along, const Shape& shape, uint32_t mask)
      : given(arg.defined || arg.data), each(along == Along::each) {
    if (given) at = Strided(arg, strides_of(arg, along, shape, mask), mask);
  }
  __device__ Index size(const Rows& rows) const { return each ? 1 : rows.inner.numel; }

 private:
  /// A shared row is dense, but for the one axis that it may have.
  static Strides strides_of(const Arg& arg, Along along, const Shape& shape, uint32_t mask) {
    if (along != Along::shared) return cpu::over_rows(arg, along, cpu::Rows(shape, mask));
    Strides strides = shape;
    Index next = arg.shape.rank() == 1 ? arg.strides[0] : 1;
    for (int i = shape.rank(); i-- > 0;) {
      strides[i] = mask >> i & 1 ? next : 0;
      if (mask >> i & 1) next *= shape[i];
    }
    return strides;
  }
};

template <class A>
__device__ const A* load_row(const RowArg& arg, const Rows& rows, Index r, A* buffer) {
  if (!arg.given) return nullptr;
  const Index first = arg.at.row(rows, r);
  WarpLane{arg.size(rows)}.each(
      [&](Index j) { buffer[j] = load<A>(arg.at, first + arg.at.along(rows, j)); });
  return buffer;
}

template <class A>
__device__ void store_row(const RowArg& arg, const Rows& rows, Index r, const A* buffer) {
  if (!arg.at.data) return;
  const Index first = arg.at.row(rows, r);
  WarpLane{arg.size(rows)}.each(
      [&](Index j) { store(arg.at, first + arg.at.along(rows, j), buffer[j]); });
}

template <class Op>
struct RowwiseArgs {
  static constexpr size_t NI = kOperands<Op>, NO = kOutputs<Op>;
  Rows rows;
  RowArg in[NI], out[NO], grad_out[NO], grad_in[NI];
  attrs_t<Op> attrs;
};

template <class Op, class A>
__global__ void rowwise_forward_kernel(RowwiseArgs<Op> p, A* memory) {
  constexpr size_t NI = p.NI, NO = p.NO;
  const Index n = std::max<Index>(1, p.rows.inner.numel);
  A* buffer = memory + warp() * Index(NI + NO) * n;
  for (Index r = warp(); r < p.rows.outer.numel; r += warps()) {
    const A* x[NI];
    A* y[NO];
    for (size_t k = 0; k < NI; ++k) x[k] = load_row(p.in[k], p.rows, r, buffer + k * n);
    for (size_t k = 0; k < NO; ++k) y[k] = buffer + (NI + k) * n;
    row_forward<Op, A>(WarpLane{p.rows.inner.numel}, p.attrs, x, y);
    for (size_t k = 0; k < NO; ++k) store_row(p.out[k], p.rows, r, y[k]);
  }
}

template <class Op, class A>
__global__ void rowwise_backward_kernel(RowwiseArgs<Op> p, A* memory) {
  constexpr size_t NI = p.NI, NO = p.NO;
  const Index n = std::max<Index>(1, p.rows.inner.numel);
  A* buffer = memory + warp() * Index(2 * NI + 2 * NO) * n;
  for (Index r = warp(); r < p.rows.outer.numel; r += warps()) {
    const A *x[NI], *y[NO], *g[NO];
    A* d[NI];
    for (size_t k = 0; k < NI; ++k) x[k] = load_row(p.in[k], p.rows, r, buffer + k * n);
    for (size_t k = 0; k < NO; ++k) y[k] = load_row(p.out[k], p.rows, r, buffer + (NI + k) * n);
    for (size_t k = 0; k < NO; ++k)
      g[k] = load_row(p.grad_out[k], p.rows, r, buffer + (NI + NO + k) * n);
    for (size_t k = 0; k < NI; ++k)
      d[k] = p.grad_in[k].at.data ? buffer + (NI + 2 * NO + k) * n : nullptr;
    row_vjp<Op>(WarpLane{p.rows.inner.numel}, p.attrs, x, y, g, d);
    for (size_t k = 0; k < NI; ++k) store_row(p.grad_in[k], p.rows, r, d[k]);
  }
}

template <class Op>
struct RowwiseRun {
  OpArgs& args;
  const Shape& shape;
  uint32_t mask;
  RowwiseArgs<Op> p{};

  explicit RowwiseRun(OpArgs& a)
      : args(a),
        shape(a.in[0].shape),
        mask(Op::axes(a.attrs.template as<attrs_t<Op>>(), shape.rank())) {
    p.rows = Rows(shape, mask);
    p.attrs = args.attrs.template as<attrs_t<Op>>();
    for (size_t k = 0; k < p.NI; ++k)
      p.in[k] = RowArg(args.in[k], Op::spec.operands[k].along, shape, mask);
    for (size_t k = 0; k < p.NO; ++k)
      p.out[k] = RowArg(args.out[k], Op::spec.outputs[k], shape, mask);
  }

  /// Launches as many warps as kMemory has room for.
  template <class A>
  void launch(void (*kernel)(RowwiseArgs<Op>, A*), Index buffers) const {
    constexpr Index kMemory = Index{64} << 20;
    if (p.rows.outer.numel == 0) return;
    const Index size = buffers * std::max<Index>(1, p.rows.inner.numel);
    const WarpGrid grid(p.rows.outer.numel, kMemory / (size * Index(sizeof(A))));
    const StreamBuffer<A> memory(grid.warps() * size, stream_of(args));
    kernel<<<grid.blocks, grid.kThreads, 0, stream_of(args)>>>(p, memory.data());
    check(cudaGetLastError(), "a rowwise op");
  }

  template <class A>
  void backward() {
    // What a shared operand gets from each row is summed over the rows at the end, in A.
    std::unique_ptr<StreamBuffer<A>> full[RowwiseArgs<Op>::NI];
    const Shape by_row{p.rows.outer.numel, p.rows.inner.numel};
    for (size_t k = 0; k < p.NO; ++k)
      if (args.grad_out[k].data)
        p.grad_out[k] = RowArg(args.grad_out[k], Op::spec.outputs[k], shape, mask);
    for (size_t k = 0; k < p.NI; ++k) {
      if (!args.grad_in[k].data) continue;
      p.grad_in[k] = RowArg(args.grad_in[k], Op::spec.operands[k].along, shape, mask);
      if (Op::spec.operands[k].along != Along::shared) continue;
      full[k] = std::make_unique<StreamBuffer<A>>(by_row.numel(), stream_of(args));
      p.grad_in[k].at = by_rows(full[k]->data());
    }
    launch(rowwise_backward_kernel<Op, A>, Index(2 * p.NI + 2 * p.NO));
    for (size_t k = 0; k < p.NI; ++k)
      if (full[k]) sum_to(full[k]->data(), by_row, args.grad_in[k], stream_of(args));
  }

 private:
  /// Dense, row after row.
  template <class A>
  Strided by_rows(A* data) const {
    Strided to;
    to.data = data;
    to.dtype = dtype_for<A>();
    Index next = 1;
    for (int i = p.rows.inner.rank; i-- > 0; next *= p.rows.inner.size[i])
      to.stride[p.rows.outer.rank + i] = next;
    for (int i = p.rows.outer.rank; i-- > 0; next *= p.rows.outer.size[i]) to.stride[i] = next;
    return to;
  }
};

template <class Op, class A>
struct RowwiseForward {
  static void run(OpArgs& args) {
    RowwiseRun<Op> run(args);
    run.launch(rowwise_forward_kernel<Op, A>, Index(run.p.NI + run.p.NO));
  }
};
template <class Op, class A>
struct RowwiseBackward {
  static void run(OpArgs& args) {
    if constexpr (!std::is_same_v<A, int64_t>) RowwiseRun<Op>(args).template backward<A>();
  }
};

}  // namespace minim::cuda
