// core/rowwise.h -- ops that need whole rows (softmax, norms, reductions). The op is written once
// against a Lane, which knows how to visit a row and to reduce over it; here a lane is one CPU
// thread and a row a buffer of the compute type A. In rowwise.cuh a lane is a warp.
//
// A functor has
//   spec.operands, each with an Along, and spec.outputs, Along::row or Along::each;
//   axes(attrs, rank): the axes that form a row, as bits;
//   forward(lane, attrs, x, y): x[k][j] reads operand k, y[k][j] writes output k; x[k] is null
//   where it was not given; vjp(lane, attrs, x, y, g, d): d[k] is null where it is not wanted, g[k]
//   where it is zero. Not called for a row at which only zeros arrive: its gradients are 0.
//   With `.wide = true` both are templates on the number that they compute in,
//   forward<W> and vjp<W>, and say whether it sufficed: false from W = A, and the row is made again
//   with W = Wider<A> (core/wide.h).
#pragma once
#include <algorithm>
#include <bit>
#include <memory>

#include "minim/core/loops.h"
#include "minim/core/row_io.h"
#include "minim/core/sum.h"
#include "minim/core/wide.h"

namespace minim {

struct CpuLane {
  Index n;
  template <class F>
  void each(F f) const {
    MINIM_IVDEP
    for (Index j = 0; j < n; ++j) f(j);
  }
  /// For one thread of the lane only: values that belong to the row as a whole.
  template <class F>
  void once(F f) const {
    f();
  }
  template <class F>
  bool any(F f) const {
    return n > 0 && (f(0) || first(f) < n);
  }
  template <class A, class F>
  A sum(F f) const {
    if constexpr (std::is_arithmetic_v<A>)
      if (n <= kSumBlock && n % kLanes == 0) return sum_whole<A>(n, f);
    return sum16<A>(n, f);
  }
  template <class A, class F>
  A max(F f) const {
    return max16<A>(n, f);
  }
  /// The first j with f(j); n if there is none.
  template <class F>
  Index first(F f) const {
    constexpr Index kBlock = 64;  // looked at without branches
    Index j = 0;
    for (; j + kBlock <= n; j += kBlock) {
      uint32_t found = 0;
      for (Index l = 0; l < kBlock; ++l) found |= f(j + l) ? 1u : 0u;
      if (found) break;
    }
    while (j < n && !f(j)) ++j;
    return j;
  }
};

/// Not inlined, so that it is compiled once for all instruction sets, and out of the way.
template <class Op, class A, class Lane>
[[gnu::noinline]] MINIM_HD void wide_forward(Lane lane, const attrs_t<Op>& attrs, const A* const* x,
                                             A* const* y) {
  Op::template forward<Wider<A>>(lane, attrs, x, y);
}
template <class Op, class A, class Lane>
[[gnu::noinline]] MINIM_HD void wide_vjp(Lane lane, const attrs_t<Op>& attrs, const A* const* x,
                                         const A* const* y, const A* const* g, A* const* d) {
  Op::template vjp<Wider<A>>(lane, attrs, x, y, g, d);
}

template <class Op, class A, class Lane>
MINIM_HD void row_forward(Lane lane, const attrs_t<Op>& attrs, const A* const* x, A* const* y) {
  if constexpr (!Op::spec.wide)
    Op::forward(lane, attrs, x, y);
  else if (!Op::template forward<A>(lane, attrs, x, y))
    wide_forward<Op>(lane, attrs, x, y);
}

/// Op::vjp, but a row at which only zeros arrive sends zeros on, whatever is in it: see vjp_at.
template <class Op, class A, class Lane>
MINIM_HD void row_vjp(Lane lane, const attrs_t<Op>& attrs, const A* const* x, const A* const* y,
                      const A* const* g, A* const* d) {
  constexpr auto operands = Op::spec.operands;  // CUDA has no address of a static member
  constexpr auto outputs = Op::spec.outputs;
  auto lane_of = [=](Along along) { return Lane{along == Along::each ? 1 : lane.n}; };
  bool some = false;
  for (size_t k = 0; k < outputs.size(); ++k)
    some = some || (g[k] && lane_of(outputs[k]).any([=](Index j) { return g[k][j] != A(0); }));
  if constexpr (Op::spec.wide) {
    if (some && !Op::template vjp<A>(lane, attrs, x, y, g, d))
      wide_vjp<Op>(lane, attrs, x, y, g, d);
  } else if (some) {
    Op::vjp(lane, attrs, x, y, g, d);
  }
  if (some) return;
  for (size_t k = 0; k < operands.size(); ++k)
    if (d[k]) lane_of(operands[k].along).each([=](Index j) { d[k][j] = A(0); });
}

namespace cpu {

/// Row after row: what one waits for, the processor fills with the next.
template <class Op, class A>
struct ForwardRows {
  static void run(Index n, Index m, const attrs_t<Op>* attrs, const RowRun<const A>* in,
                  const RowRun<A>* out) {
    for (Index i = 0; i < m; ++i) {
      const A* x[kOperands<Op>];
      A* y[kOutputs<Op>];
      for (size_t k = 0; k < kOperands<Op>; ++k) x[k] = in[k][i];
      for (size_t k = 0; k < kOutputs<Op>; ++k) y[k] = out[k][i];
      row_forward<Op, A>(CpuLane{n}, *attrs, x, y);
    }
  }
};
template <class Op, class A>
struct BackwardRows {
  /// @param sums by operand: where the gradients of a shared one add up
  static void run(Index n, Index m, const attrs_t<Op>* attrs, const RowRun<const A>* in,
                  const RowRun<const A>* out, const RowRun<const A>* grad_out,
                  const RowRun<A>* grad_in, const RowRun<A>* sums) {
    constexpr size_t NI = kOperands<Op>, NO = kOutputs<Op>;
    for (Index i = 0; i < m; ++i) {
      const A *x[NI], *y[NO], *g[NO];
      A* d[NI];
      for (size_t k = 0; k < NI; ++k) x[k] = in[k][i], d[k] = grad_in[k][i];
      for (size_t k = 0; k < NO; ++k) y[k] = out[k][i], g[k] = grad_out[k][i];
      row_vjp<Op>(CpuLane{n}, *attrs, x, y, g, d);
      for (size_t k = 0; k < NI; ++k)
        if (A* sum = sums[k][i]; Op::spec.operands[k].along == Along::shared && sum) {
          MINIM_IVDEP
          for (Index j = 0; j < n; ++j) sum[j] += d[k][j];
        }
    }
  }
};

template <class Op, class A>
struct RowwiseRun {
  static constexpr size_t NI = kOperands<Op>, NO = kOutputs<Op>;
  static constexpr Index kGrain = 4096;
  OpArgs& args;
  Rows rows;
  const attrs_t<Op>& attrs;
  Together tiles;
  Index most;  ///< rows in a run, whose buffers stay in L1
  Index line;  ///< no run goes over the end of a line of so many rows
  RowIo<A> in[NI], out[NO];

  explicit RowwiseRun(OpArgs& a)
      : args(a),
        rows(a.in[0].shape, Op::axes(a.attrs.template as<attrs_t<Op>>(), a.in[0].shape.rank())),
        attrs(a.attrs.template as<attrs_t<Op>>()),
        tiles(rows),
        line(std::max<Index>(1, rows.count)) {
    for (const auto& operand : Op::spec.operands)  // then rows are not taken in order
      if (operand.along == Along::shared) tiles.most = 1;
    most = tiles.most > 1 ? tiles.most
                          : std::clamp<Index>(2048 / std::max<Index>(1, rows.n), 1, kLanes);
    for (size_t k = 0; k < NI; ++k) in[k] = io(args.in[k], Op::spec.operands[k].along);
    for (size_t k = 0; k < NO; ++k) out[k] = io(args.out[k], Op::spec.outputs[k]);
  }

  RowIo<A> io(const Arg& arg, Along along) {
    RowIo<A> io{.arg = &arg, .along = along, .together = tiles};
    if (!arg.data || along == Along::shared) return io;
    io.strides = over_rows(arg, along, rows);
    io.step = rows.step(io.strides);
    if (!io.step.even || tiles.most > 1) line = rows.line();
    if (along == Along::each || !rows.dense(io.strides)) return io;
    io.direct = arg.dtype == dtype_for<A>();
    io.packed = io.step.even && io.step.by == rows.n;
    return io;
  }
  /// Calls f(r, m) for the runs of rows r .. r + m - 1 that make up [begin, end).
  template <class F>
  void runs(Index begin, Index end, F f) const {
    for (Index r = begin, last; r < end; r = last) {
      const Index at = r % line;
      last = std::min({end, r - at % most + most, r - at + line});
      f(r, last - r);
    }
  }
  /// A buffer for each operand, output and gradient. What was not saved is poison.
  struct Buffers {
    Index room;
    Scratch<A> memory;
    Buffers(const RowwiseRun& run, size_t n)
        : room(run.most * run.tiles.stride), memory(n * size_t(room)) {
      auto poison = [&](const RowIo<A>& io, A* to) {
        if (io.arg->defined && !io.arg->data)
          std::copy_n(load_run<A>(nullptr, io.arg->dtype, 1, run.rows.n, to), run.rows.n, to);
      };
      for (size_t k = 0; k < NI; ++k) poison(run.in[k], (*this)[k]);
      for (size_t k = 0; k < NO; ++k) poison(run.out[k], (*this)[NI + k]);
    }
    A* operator[](size_t k) const { return memory.data() + Index(k) * room; }
  };

  void forward() const {
    const Index grain = std::max(tiles.most, kGrain / std::max<Index>(1, rows.n));
    parallel_for(rows.count, grain, [&](Index begin, Index end) {
      const Buffers buffer(*this, NI + NO);
      runs(begin, end, [&](Index r, Index m) {
        RowRun<const A> x[NI];
        RowRun<A> y[NO];
        for (size_t k = 0; k < NI; ++k) x[k] = in[k].load(rows, r, m, buffer[k]);
        for (size_t k = 0; k < NO; ++k) y[k] = out[k].target(rows, r, buffer[NI + k]);
        per_isa<A, ForwardRows<Op, A>>(rows.n, m, &attrs, x, y);
        for (size_t k = 0; k < NO; ++k) out[k].store(rows, r, m, buffer[NI + k]);
      });
    });
  }

  void backward() {
    // What a shared operand gets is summed over the rows in the order of core/sum.h: every lane of
    // every block has a sum of its own, and the rows that are added to neighbouring ones are a unit
    // of work, of as many as leave a unit for each thread: memory is best read in order. Where they
    // are not all rows of a block, the gradients of the rows themselves are made apart, of a part
    // of the block that a thread has at hand: it is in its cache from the kernel before.
    const Index blocks = std::max<Index>(1, (rows.count + kSumBlock - 1) / kSumBlock);
    const Index together =
        Index(std::bit_floor(size_t(std::clamp<Index>(blocks * kLanes / threads(), 1, kLanes))));
    const Index units = kLanes / together;
    std::unique_ptr<Scratch<A>> sums[NI];
    RowIo<A> g[NO], d[NI];
    bool own = false, shared = false;  // which gradients are wanted
    bool over = false;                 // one is written over an operand
    for (size_t k = 0; k < NO; ++k) g[k] = io(args.grad_out[k], Op::spec.outputs[k]);
    for (size_t k = 0; k < NI; ++k) {
      d[k] = io(args.grad_in[k], Op::spec.operands[k].along);
      if (!args.grad_in[k].data) continue;
      for (size_t j = 0; j < NI; ++j) over = over || args.in[j].data == args.grad_in[k].data;
      if (Op::spec.operands[k].along != Along::shared) {
        own = true;
        continue;
      }
      shared = true;
      sums[k] = std::make_unique<Scratch<A>>(size_t(blocks * kLanes * rows.n));
      std::fill_n(sums[k]->data(), blocks * kLanes * rows.n, A(0));
    }
    for (size_t k = 0; k < NI && over; ++k) d[k].direct = false;  // beside what is read, first
    auto run = [&](const Buffers& buffer, Index r, Index m, bool own, bool shared) {
      RowRun<const A> x[NI], y[NO], gy[NO];
      RowRun<A> dx[NI], sum[NI];
      for (size_t k = 0; k < NI; ++k) {
        x[k] = in[k].load(rows, r, m, buffer[k]);
        if (sums[k] ? shared : own) dx[k] = d[k].target(rows, r, buffer[NI + 2 * NO + k]);
        if (sums[k] && shared)
          sum[k] = {sums[k]->data() + (r / kSumBlock * kLanes + r % kLanes) * rows.n, rows.n};
      }
      for (size_t k = 0; k < NO; ++k) {
        y[k] = out[k].load(rows, r, m, buffer[NI + k]);
        if (args.grad_out[k].data) gy[k] = g[k].load(rows, r, m, buffer[NI + NO + k]);
      }
      per_isa<A, BackwardRows<Op, A>>(rows.n, m, &attrs, x, y, gy, dx, sum);
      for (size_t k = 0; k < NI && own; ++k)
        if (!sums[k]) d[k].store(rows, r, m, buffer[NI + 2 * NO + k]);
    };
    const Index grain = std::max(tiles.most, kGrain / std::max<Index>(1, rows.n));
    if (!shared)
      parallel_for(rows.count, grain, [&](Index begin, Index end) {
        const Buffers buffer(*this, 2 * NI + 2 * NO);
        runs(begin, end, [&](Index r, Index m) { run(buffer, r, m, true, false); });
      });
    else
      parallel_for(blocks * units, 1, [&](Index unit, Index) {
        const Buffers buffer(*this, 2 * NI + 2 * NO);
        const Index first = unit / units * kSumBlock, part = unit % units;
        const Index n = std::min(rows.count - first, kSumBlock);
        const bool apart = own && units > 1 && !over;
        for (Index r = first + part * together; r < first + n; r += kLanes)
          runs(r, std::min(first + n, r + together),
               [&](Index at, Index m) { run(buffer, at, m, own && !apart, true); });
        if (apart)
          runs(first + n * part / units, first + n * (part + 1) / units,
               [&](Index at, Index m) { run(buffer, at, m, true, false); });
      });
    for (size_t k = 0; k < NI; ++k) {
      if (!sums[k]) continue;
      A* total = sums[k]->data();
      for (Index block = 1; block < blocks; ++block)
        for (Index i = 0; i < kLanes * rows.n; ++i) total[i] += total[block * kLanes * rows.n + i];
      for (Index half = kLanes / 2; half > 0; half /= 2)
        for (Index i = 0; i < half * rows.n; ++i) total[i] += total[half * rows.n + i];
      const Arg& to = args.grad_in[k];
      store_run(to.data, to.dtype, to.shape.rank() == 1 ? to.strides[0] : 1, rows.n, total);
    }
  }
};

template <class Op, class A>
struct RowwiseForward {
  static void run(OpArgs& args) { RowwiseRun<Op, A>(args).forward(); }
};
template <class Op, class A>
struct RowwiseBackward {
  static void run(OpArgs& args) { RowwiseRun<Op, A>(args).backward(); }
};

}  // namespace cpu
}  // namespace minim
