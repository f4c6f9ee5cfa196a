// core/loops.h -- a pointwise functor becomes a CPU kernel here and a CUDA kernel in loops.cuh.
// Runs of each operand are loaded into the compute type A, the functor is called on every element,
// and the result is stored, rounded once; so a functor is compiled per compute type, not per dtype,
// and knows nothing of dtypes, strides or broadcasting.
//
// A functor has forward(x...) and vjp(g, y, x..., d) which sets d[i] = g * dy/dx_i; with an Attrs
// type both take `const Attrs&` first; with `.random = true` a last operand is uniform in [0, 1),
// the same forward and backward.
#pragma once
#include <memory>
#include <utility>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/functor.h"
#include "minim/core/math.h"
#include "minim/core/op_args.h"
#include "minim/core/per_isa.h"
#include "minim/core/random.h"
#include "minim/core/walk.h"

namespace minim {

inline constexpr Index kBlock = 512;  ///< elements in a buffer: a few of them stay in L1

template <class Op, class A, size_t... I>
MINIM_HD inline A forward_at(const attrs_t<Op>& attrs, const A* const* x, Index i,
                             std::index_sequence<I...>) {
  if constexpr (requires { Op::forward(attrs, x[I][i]...); })
    return Op::forward(attrs, x[I][i]...);
  else
    return Op::forward(x[I][i]...);
}
template <class Op, class A, size_t... I>
MINIM_HD inline void vjp_at(const attrs_t<Op>& attrs, A g, A y, const A* const* x, Index i, A* d,
                            std::index_sequence<I...>) {
  if constexpr (requires { Op::vjp(attrs, g, y, x[I][i]..., d); })
    Op::vjp(attrs, g, y, x[I][i]..., d);
  else
    Op::vjp(g, y, x[I][i]..., d);
  // Where exactly 0 arrives 0 leaves, even at an infinite or NaN slope: the branch that `where` did
  // not take (field case N1). The price: a NaN or inf slope (of sqrt, log or pow outside its
  // domain, or at a NaN operand) stays hidden in the gradient where the cotangent is 0: masked
  // away, multiplied by 0, or underflowed to 0 in 16 bits. Only a result that reaches the loss
  // shows it.
  // By a mask: as a choice of values the compiler makes it a branch around the slope, and the loop
  // is no longer vectorised.
  using U = std::conditional_t<sizeof(A) == 4, uint32_t, uint64_t>;
  const U mask = g == A(0) ? U(0) : ~U(0);
  for (size_t k = 0; k < kOperands<Op>; ++k) d[k] = bits<A>(bits<U>(d[k]) & mask);
}

namespace cpu {

/// The draws of kBlocks Philox blocks: those of a stream from `first` on.
template <class A>
struct UniformLoop {
  static constexpr int kBlocks = 32;
  static void run(RngKey key, uint64_t first, A* out) {
    uint32_t lanes[4][kBlocks];
    Philox::blocks(key.seed, key.stream, first, lanes);
    for (int l = 0; l < kBlocks; ++l)
      for (int k = 0; k < 4; ++k) out[4 * l + k] = A(uniform01(lanes[k][l]));
  }
};

/// Uniform draws [first, first + n) of a stream, four to a Philox block.
template <class A>
void uniform_run(RngKey key, Index first, Index n, A* out) {
  constexpr Index kTogether = 4 * UniformLoop<A>::kBlocks;
  for (Index i = 0; i < n;) {
    if ((first + i) % 4 == 0 && n - i >= kTogether) {
      per_isa<A, UniformLoop<A>>(key, uint64_t(first + i) / 4, out + i);
      i += kTogether;
      continue;
    }
    auto four = Philox::block(key.seed, key.stream, uint64_t(first + i) / 4);
    for (Index lane = (first + i) % 4; lane < 4 && i < n; ++lane, ++i)
      out[i] = A(uniform01(four[size_t(lane)]));
  }
}

/// The operands' runs as arrays of A, loaded block by block.
template <class Op, class A>
struct Loader {
  static constexpr size_t N = kInputs<Op>;
  A buffer[N][kBlock];
  const A* x[N];
  void load(const OpArgs& args, const Index* at, const Index* stride, Index linear, Index n) {
    for (size_t k = 0; k < kOperands<Op>; ++k) {
      const Arg& in = args.in[k];
      x[k] = load_run(in.data ? advance(in.data, in.dtype, at[k]) : nullptr, in.dtype, stride[k], n,
                      buffer[k]);
    }
    if constexpr (Op::spec.random) {
      uniform_run(args.rng, linear, n, buffer[kOperands<Op>]);
      x[kOperands<Op>] = buffer[kOperands<Op>];
    }
  }
};

template <class Op, class A>
struct ForwardLoop {
  static void run(const attrs_t<Op>* from, const A* const* x, Index n, A* y) {
    const attrs_t<Op> attrs = *from;  // a branch on a local one is taken out of the loop
    many(n, x[0], [=](Index j) {
      y[j] = forward_at<Op, A>(attrs, x, j, std::make_index_sequence<kInputs<Op>>{});
    });
  }
};

template <class Op, class A>
struct BackwardLoop {
  static void run(const attrs_t<Op>* from, const A* g, const A* y, const A* const* x, Index n,
                  A* const* d) {
    const attrs_t<Op> attrs = *from;
    many(n, g, [=](Index j) {
      A one[kOperands<Op>];
      vjp_at<Op, A>(attrs, g[j], y[j], x, j, one, std::make_index_sequence<kInputs<Op>>{});
      for (size_t k = 0; k < kOperands<Op>; ++k) d[k][j] = one[k];
    });
  }
};

template <class Op, class A>
void pointwise_forward(OpArgs& args) {
  constexpr size_t N = kOperands<Op>;
  const auto& attrs = args.attrs.as<attrs_t<Op>>();
  const Arg& out = args.out[0];
  std::array<Strides, N> strides;
  std::array<const Strides*, N + 1> all;
  for (size_t k = 0; k < N; ++k)
    all[k] = &(strides[k] = broadcast_strides(args.in[k].shape, args.in[k].strides, out.shape));
  all[N] = &out.strides;  // fresh, so dense: its offset is the element's number
  detail::Walk<N + 1> walk(out.shape, all);
  walk.run([&](std::array<Index, N + 1> at, Index n) {
    Loader<Op, A> in;
    A result[kBlock];
    for (Index i = 0; i < n; i += kBlock) {
      Index m = std::min(kBlock, n - i);
      in.load(args, at.data(), walk.stride.data(), at[N], m);
      void* to = advance(out.data, out.dtype, at[N]);
      A* y = out.dtype == dtype_for<A>() ? static_cast<A*>(to) : result;
      per_isa<A, ForwardLoop<Op, A>>(&attrs, static_cast<const A* const*>(in.x), m, y);
      store_run(to, out.dtype, 1, m, y);
      for (size_t k = 0; k <= N; ++k) at[k] += m * walk.stride[k];
    }
  });
}

template <class Op, class A>
void pointwise_backward(OpArgs& args) {
  constexpr size_t N = kOperands<Op>;
  const auto& attrs = args.attrs.as<attrs_t<Op>>();
  const Arg &g = args.grad_out[0], &y = args.out[0];
  // A gradient whose operand was broadcast is first written at full size, in A, and summed once at
  // the end.
  struct Target {
    std::unique_ptr<Scratch<A>> full;
    Arg to;
  } target[N];
  for (size_t k = 0; k < N; ++k) {
    target[k].to = args.grad_in[k];
    if (!args.grad_in[k].data || args.in[k].shape == g.shape) continue;
    target[k].full = std::make_unique<Scratch<A>>(size_t(g.shape.numel()));
    target[k].to =
        Arg{target[k].full->data(), dtype_for<A>(), g.shape, contiguous_strides(g.shape), true};
  }
  Strides dense = contiguous_strides(g.shape);
  std::array<Strides, N> strides;
  std::array<const Strides*, N + 3> all;
  for (size_t k = 0; k < N; ++k)
    all[k] = &(strides[k] = broadcast_strides(args.in[k].shape, args.in[k].strides, g.shape));
  all[N] = &dense;  // the element's number, and where its gradient goes
  all[N + 1] = &g.strides;
  all[N + 2] = y.data ? &y.strides : &dense;
  detail::Walk<N + 3> walk(g.shape, all);
  walk.run([&](std::array<Index, N + 3> at, Index n) {
    Loader<Op, A> in;
    A g_buffer[kBlock], y_buffer[kBlock], d[N][kBlock];
    for (Index i = 0; i < n; i += kBlock) {
      Index m = std::min(kBlock, n - i);
      in.load(args, at.data(), walk.stride.data(), at[N], m);
      const A* gs =
          load_run(advance(g.data, g.dtype, at[N + 1]), g.dtype, walk.stride[N + 1], m, g_buffer);
      const A* ys = load_run(y.data ? advance(y.data, y.dtype, at[N + 2]) : nullptr, y.dtype,
                             walk.stride[N + 2], m, y_buffer);
      void* to[N];
      A* ds[N];
      for (size_t k = 0; k < N; ++k) {
        const Arg& t = target[k].to;
        to[k] = t.data ? advance(t.data, t.dtype, at[N]) : nullptr;
        ds[k] = to[k] && t.dtype == dtype_for<A>() ? static_cast<A*>(to[k]) : d[k];
      }
      per_isa<A, BackwardLoop<Op, A>>(&attrs, gs, ys, static_cast<const A* const*>(in.x), m,
                                      static_cast<A* const*>(ds));
      for (size_t k = 0; k < N; ++k)
        if (to[k]) store_run(to[k], target[k].to.dtype, 1, m, ds[k]);
      for (size_t k = 0; k < N + 3; ++k) at[k] += m * walk.stride[k];
    }
  });
  for (size_t k = 0; k < N; ++k)
    if (target[k].full) sum_to(target[k].full->data(), g.shape, args.grad_in[k]);
}

/// Picks the compute type. Integers only for functors that say `.integers = true`.
template <template <class, class> class Run, class Op>
void by_compute(OpArgs& args) {
  switch (compute_in(args.dtype)) {
    case Compute::f32:
      return Run<Op, float>::run(args);
    case Compute::f64:
      return Run<Op, double>::run(args);
    case Compute::i64:
      if constexpr (Op::spec.integers) return Run<Op, int64_t>::run(args);
      fail("no integer kernel");  // the one path has refused it before, by name
  }
}
template <class Op, class A>
struct PointwiseForward {
  static void run(OpArgs& args) { pointwise_forward<Op, A>(args); }
};
template <class Op, class A>
struct PointwiseBackward {
  static void run(OpArgs& args) {
    if constexpr (!std::is_same_v<A, int64_t>) pointwise_backward<Op, A>(args);
  }
};

}  // namespace cpu
}  // namespace minim
