// core/rowwise.h -- ops that need whole rows (softmax, norms, reductions). The op is written once
// against a Lane, which knows how to visit a row and to reduce over it; here a lane is one CPU
// thread and a row a buffer of the compute type A. In rowwise.cuh a lane is a warp.
//
// A functor has
//   operands: each with Along::row (an element per position), ::shared (one row used by all) or
//   ::each (a value per row); outputs:  std::array<Along, n>, Along::row or Along::each;
//   axes(attrs, rank): the axes that form a row, as bits;
//   forward(lane, attrs, x, y): x[k][j] reads operand k, y[k][j] writes output k; x[k] is null
//   where it was not given; vjp(lane, attrs, x, y, g, d): d[k] is null where it is not wanted, g[k]
//   where it is zero. Not called for a row at which only zeros arrive: its gradients are 0.
#pragma once
#include <bit>
#include <memory>
#include <vector>

#include "minim/core/loops.h"
#include "minim/core/row_io.h"
#include "minim/core/sum.h"

namespace minim {

struct CpuLane {
  Index n;
  template <class F>
  void each(F f) const {
#pragma GCC ivdep
    for (Index j = 0; j < n; ++j) f(j);
  }
  /// For one thread of the lane only: values that belong to the row as a whole.
  template <class F>
  void once(F f) const {
    f();
  }
  template <class F>
  bool any(F f) const {
    return first(f) < n;
  }
  template <class A, class F>
  A sum(F f) const {
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

/// Op::vjp, but a row at which only zeros arrive sends zeros on, whatever is in it: see vjp_at.
template <class Op, class A, class Lane>
MINIM_HD void row_vjp(Lane lane, const attrs_t<Op>& attrs, const A* const* x, const A* const* y,
                      const A* const* g, A* const* d) {
  constexpr auto operands = Op::operands;  // CUDA has no address of a static member
  constexpr auto outputs = Op::outputs;
  auto lane_of = [=](Along along) { return Lane{along == Along::each ? 1 : lane.n}; };
  bool some = false;
  for (size_t k = 0; k < outputs.size(); ++k)
    some = some || (g[k] && lane_of(outputs[k]).any([=](Index j) { return g[k][j] != A(0); }));
  if (some) return Op::vjp(lane, attrs, x, y, g, d);
  for (size_t k = 0; k < operands.size(); ++k)
    if (d[k]) lane_of(operands[k].along).each([=](Index j) { d[k][j] = A(0); });
}

namespace cpu {

template <class Op, class A>
struct RowForward {
  static void run(Index n, const attrs_t<Op>* attrs, const A* const* x, A* const* y) {
    Op::forward(CpuLane{n}, *attrs, x, y);
  }
};
template <class Op, class A>
struct RowBackward {
  /// @param sum by operand: where the gradients of a shared one add up
  static void run(Index n, const attrs_t<Op>* attrs, const A* const* x, const A* const* y,
                  const A* const* g, A* const* d, A* const* sum) {
    row_vjp<Op>(CpuLane{n}, *attrs, x, y, g, d);
    for (size_t k = 0; k < Op::operands.size(); ++k)
      if (Op::operands[k].along == Along::shared && sum[k])
        for (Index j = 0; j < n; ++j) sum[k][j] += d[k][j];
  }
};

template <class Op, class A>
struct RowwiseRun {
  static constexpr size_t NI = Op::operands.size(), NO = Op::outputs.size();
  OpArgs& args;
  Rows rows;
  const attrs_t<Op>& attrs;
  static constexpr Index kGrain = 4096;
  Together tiles;

  explicit RowwiseRun(OpArgs& a)
      : args(a),
        rows(a.in[0].shape, Op::axes(a.attrs.template as<attrs_t<Op>>(), a.in[0].shape.rank())),
        attrs(a.attrs.template as<attrs_t<Op>>()),
        tiles(rows) {
    for (const auto& operand : Op::operands)  // then rows are not taken in order
      if (operand.along == Along::shared) tiles.most = 1;
  }

  /// What was not saved is filled with poison, once.
  RowIo<A> io(const Arg& arg, Along along, A* buffer, Index begin, Index end) const {
    if (arg.defined && !arg.data)
      std::copy_n(load_run<A>(nullptr, arg.dtype, 1, rows.n, buffer), rows.n, buffer);
    RowIo<A> io{.arg = &arg, .along = along, .buffer = buffer, .together = tiles.of(begin, end)};
    if (!arg.defined && !arg.data) return io;
    io.strides = over_rows(arg, along, rows);
    if (along != Along::shared) io.step = rows.step(io.strides);
    if (along == Along::row && arg.dtype == dtype_for<A>())
      rows.runs(io.strides, [&](Index, Index run, Index stride, Index) {
        io.direct = run == rows.n && stride == 1;
      });
    return io;
  }
  /// Calls body(first, last, buffers) for chunks of what there are `count` of, each `cost` numbers;
  /// a buffer per operand, output and gradient.
  template <class F>
  void over(Index count, Index cost, size_t buffers, F body) const {
    const Index room = tiles.most * tiles.stride;
    parallel_for(count, std::max(tiles.most, kGrain / std::max<Index>(1, cost)),
                 [&](Index b, Index e) {
                   Scratch<A> memory(buffers * size_t(room));
                   std::vector<A*> buffer(buffers);
                   for (size_t k = 0; k < buffers; ++k) buffer[k] = memory.data() + Index(k) * room;
                   body(b, e, buffer.data());
                 });
  }

  void forward() const {
    over(rows.count, rows.n, NI + NO, [&](Index begin, Index end, A** buffer) {
      RowIo<A> in[NI], out[NO];
      for (size_t k = 0; k < NI; ++k)
        in[k] = io(args.in[k], Op::operands[k].along, buffer[k], begin, end);
      for (size_t k = 0; k < NO; ++k)
        out[k] = io(args.out[k], Op::outputs[k], buffer[NI + k], begin, end);
      for (Index r = begin; r < end; ++r) {
        const A* x[NI];
        A* y[NO];
        for (size_t k = 0; k < NI; ++k) x[k] = in[k].load(rows, r);
        for (size_t k = 0; k < NO; ++k) y[k] = out[k].target(rows, r);
        per_isa<A, RowForward<Op, A>>(rows.n, &attrs, static_cast<const A* const*>(x),
                                      static_cast<A* const*>(y));
        for (size_t k = 0; k < NO; ++k) out[k].store(rows, r);
      }
    });
  }

  void backward() const {
    // What a shared operand gets is summed over the rows in the order of core/sum.h: every lane of
    // every block has a sum of its own, and the rows that are added to neighbouring ones are a unit
    // of work, of as many as leave a unit for each thread: memory is best read in order.
    const Index blocks = std::max<Index>(1, (rows.count + kSumBlock - 1) / kSumBlock);
    const Index together =
        Index(std::bit_floor(size_t(std::clamp<Index>(blocks * kLanes / threads(), 1, kLanes))));
    const Index units = kLanes / together;
    std::unique_ptr<Scratch<A>> sums[NI];
    bool by_unit = false;
    for (size_t k = 0; k < NI; ++k) {
      if (!args.grad_in[k].data || Op::operands[k].along != Along::shared) continue;
      sums[k] = std::make_unique<Scratch<A>>(size_t(blocks * kLanes * rows.n));
      std::fill_n(sums[k]->data(), blocks * kLanes * rows.n, A(0));
      by_unit = true;
    }
    auto chunk = [&](Index begin, Index end, A** buffer) {
      RowIo<A> in[NI], out[NO], g[NO], d[NI];
      for (size_t k = 0; k < NI; ++k)
        in[k] = io(args.in[k], Op::operands[k].along, buffer[k], begin, end);
      for (size_t k = 0; k < NO; ++k)
        out[k] = io(args.out[k], Op::outputs[k], buffer[NI + k], begin, end);
      for (size_t k = 0; k < NO; ++k)
        g[k] = io(args.grad_out[k], Op::outputs[k], buffer[NI + NO + k], begin, end);
      for (size_t k = 0; k < NI; ++k) {
        d[k] = io(args.grad_in[k], Op::operands[k].along, buffer[NI + 2 * NO + k], begin, end);
        for (size_t j = 0; j < NI; ++j)  // written over what is read: beside it first
          d[k].direct = d[k].direct && args.in[j].data != args.grad_in[k].data;
      }
      auto row = [&](Index r) {
        const A *x[NI], *y[NO], *gy[NO];
        A *dx[NI], *sum[NI];
        for (size_t k = 0; k < NI; ++k) x[k] = in[k].load(rows, r);
        for (size_t k = 0; k < NI; ++k)
          sum[k] =
              sums[k] ? sums[k]->data() + (r / kSumBlock * kLanes + r % kLanes) * rows.n : nullptr;
        for (size_t k = 0; k < NO; ++k) y[k] = out[k].load(rows, r);
        for (size_t k = 0; k < NO; ++k)
          gy[k] = args.grad_out[k].data ? g[k].load(rows, r) : nullptr;
        for (size_t k = 0; k < NI; ++k) dx[k] = d[k].target(rows, r);
        per_isa<A, RowBackward<Op, A>>(rows.n, &attrs, static_cast<const A* const*>(x),
                                       static_cast<const A* const*>(y),
                                       static_cast<const A* const*>(gy), static_cast<A* const*>(dx),
                                       static_cast<A* const*>(sum));
        for (size_t k = 0; k < NI; ++k)
          if (!sums[k]) d[k].store(rows, r);
      };
      for (Index at = begin; at < end; ++at) {
        const Index block = at / units * kSumBlock, last = std::min(rows.count, block + kSumBlock);
        if (!by_unit) row(at);
        for (Index r = block + at % units * together; by_unit && r < last; r += kLanes)
          for (Index i = r; i < std::min(last, r + together); ++i) row(i);
      }
    };
    by_unit ? over(blocks * units, kGrain, 2 * NI + 2 * NO, chunk)
            : over(rows.count, rows.n, 2 * NI + 2 * NO, chunk);
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
