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
#include <memory>
#include <vector>

#include "minim/core/loops.h"
#include "minim/core/sum.h"

namespace minim {

enum class Along : uint8_t { row, shared, each };

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
    Index j = 0;
    while (j < n && !f(j)) ++j;
    return j < n;
  }
  template <class A, class F>
  A sum(F f) const {
    return sum16<A>(n, f);
  }
  template <class A, class F>
  A max(F f) const {
    return max16<A>(n, f);
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

/// The rows of a shape: kept axes number them, row axes run along them.
struct Rows {
  Shape shape;
  uint32_t mask;  ///< row axes
  Index count = 1, n = 1;
  Rows(const Shape& s, uint32_t m) : shape(s), mask(m) {
    for (int i = 0; i < s.rank(); ++i) (m >> i & 1 ? n : count) *= s[i];
  }
  Index offset(Index r, const Strides& strides) const {
    Index at = 0;
    for (int i = shape.rank(); i-- > 0;)
      if (!(mask >> i & 1)) at += r % shape[i] * strides[i], r /= shape[i];
    return at;
  }
  /// Calls f(offset, run, stride, first) for the runs of a row.
  template <class F>
  void runs(const Strides& strides, F f) const {
    int inner = -1;
    for (int i = 0; i < shape.rank(); ++i)
      if (mask >> i & 1 && shape[i] != 1) inner = i;
    if (inner < 0) return f(Index{0}, n, Index{1}, Index{0});
    Index run = shape[inner];
    for (Index first = 0; first < n; first += run) {
      Index at = 0, rest = first / run;
      for (int i = inner; i-- > 0;)
        if (mask >> i & 1) at += rest % shape[i] * strides[i], rest /= shape[i];
      f(at, run, strides[inner], first);
    }
  }
};

/// One operand, output or gradient as rows of A.
template <class A>
struct RowIo {
  const Arg* arg = nullptr;
  Along along = Along::row;
  A* buffer = nullptr;
  Strides strides{};  ///< along::each: over the full shape, 0 on row axes

  const A* load(const Rows& rows, Index r) const {
    if (!arg->defined) return nullptr;
    Index n = along == Along::each ? 1 : rows.n;
    if (!arg->data) return load_run<A>(nullptr, arg->dtype, 1, n, buffer);
    if (along == Along::each) return load_run(at(rows, r), arg->dtype, 1, 1, buffer);
    if (along == Along::shared)  // one axis: a column of a matrix is one, too
      return load_run(arg->data, arg->dtype, arg->shape.rank() == 1 ? arg->strides[0] : 1, n,
                      buffer);
    const A* direct = nullptr;
    rows.runs(strides, [&](Index offset, Index run, Index stride, Index first) {
      const A* p = load_run(advance(at(rows, r), arg->dtype, offset), arg->dtype, stride, run,
                            buffer + first);
      if (run == n)
        direct = p;
      else if (p != buffer + first)
        std::copy(p, p + run, buffer + first);
    });
    return direct ? direct : buffer;
  }
  A* target() const { return arg && arg->data ? buffer : nullptr; }
  void store(const Rows& rows, Index r) const {
    if (!arg || !arg->data) return;
    if (along == Along::each) return store_run(at(rows, r), arg->dtype, 1, 1, buffer);
    rows.runs(strides, [&](Index offset, Index run, Index stride, Index first) {
      store_run(advance(at(rows, r), arg->dtype, offset), arg->dtype, stride, run, buffer + first);
    });
  }
  std::byte* at(const Rows& rows, Index r) const {
    return advance(arg->data, arg->dtype, rows.offset(r, strides));
  }
};

/// Strides of an argument over the rows' full shape. Along::each arguments either keep the row axes
/// as 1 or drop them.
inline Strides over_rows(const Arg& arg, Along along, const Rows& rows) {
  if (along != Along::each) return arg.strides;
  Strides out = rows.shape;
  bool kept = arg.shape.rank() == rows.shape.rank();
  for (int i = 0, k = 0; i < rows.shape.rank(); ++i) {
    bool in_row = rows.mask >> i & 1;
    out[i] = in_row ? 0 : arg.strides[kept ? i : k];
    if (!in_row || kept) ++k;
  }
  return out;
}

template <class Op, class A>
struct RowForward {
  static void run(Index n, const attrs_t<Op>* attrs, const A* const* x, A* const* y) {
    Op::forward(CpuLane{n}, *attrs, x, y);
  }
};
template <class Op, class A>
struct RowBackward {
  static void run(Index n, const attrs_t<Op>* attrs, const A* const* x, const A* const* y,
                  const A* const* g, A* const* d) {
    row_vjp<Op>(CpuLane{n}, *attrs, x, y, g, d);
  }
};

template <class Op, class A>
struct RowwiseRun {
  static constexpr size_t NI = Op::operands.size(), NO = Op::outputs.size();
  OpArgs& args;
  Rows rows;
  const attrs_t<Op>& attrs;
  static constexpr Index kGrain = 4096;

  explicit RowwiseRun(OpArgs& a)
      : args(a),
        rows(a.in[0].shape, Op::axes(a.attrs.template as<attrs_t<Op>>(), a.in[0].shape.rank())),
        attrs(a.attrs.template as<attrs_t<Op>>()) {}

  RowIo<A> io(const Arg& arg, Along along, A* buffer) const {
    return {&arg, along, buffer, arg.defined || arg.data ? over_rows(arg, along, rows) : Strides{}};
  }
  /// Calls body(first row, last row, buffers) for chunks of rows; a buffer per operand, output and
  /// gradient.
  template <class F>
  void over(size_t buffers, F body) const {
    Index stride = (rows.n + 16) / 16 * 16;
    parallel_for(rows.count, std::max<Index>(1, kGrain / std::max<Index>(1, rows.n)),
                 [&](Index b, Index e) {
                   Scratch<A> memory(buffers * size_t(stride));
                   std::vector<A*> buffer(buffers);
                   for (size_t k = 0; k < buffers; ++k)
                     buffer[k] = memory.data() + Index(k) * stride;
                   body(b, e, buffer.data());
                 });
  }

  void forward() const {
    over(NI + NO, [&](Index begin, Index end, A** buffer) {
      RowIo<A> in[NI], out[NO];
      for (size_t k = 0; k < NI; ++k) in[k] = io(args.in[k], Op::operands[k].along, buffer[k]);
      for (size_t k = 0; k < NO; ++k) out[k] = io(args.out[k], Op::outputs[k], buffer[NI + k]);
      for (Index r = begin; r < end; ++r) {
        const A* x[NI];
        A* y[NO];
        for (size_t k = 0; k < NI; ++k) x[k] = in[k].load(rows, r);
        for (size_t k = 0; k < NO; ++k) y[k] = out[k].target();
        per_isa<A, RowForward<Op, A>>(rows.n, &attrs, static_cast<const A* const*>(x),
                                      static_cast<A* const*>(y));
        for (size_t k = 0; k < NO; ++k) out[k].store(rows, r);
      }
    });
  }

  void backward() const {
    // What a shared operand gets from each row is summed over the rows at the end, in A.
    std::unique_ptr<Scratch<A>> full[NI];
    Arg target[NI];
    for (size_t k = 0; k < NI; ++k) {
      target[k] = args.grad_in[k];
      if (!target[k].data || Op::operands[k].along != Along::shared) continue;
      full[k] = std::make_unique<Scratch<A>>(size_t(rows.count * rows.n));
    }
    over(2 * NI + 2 * NO, [&](Index begin, Index end, A** buffer) {
      RowIo<A> in[NI], out[NO], g[NO], d[NI];
      for (size_t k = 0; k < NI; ++k) in[k] = io(args.in[k], Op::operands[k].along, buffer[k]);
      for (size_t k = 0; k < NO; ++k) out[k] = io(args.out[k], Op::outputs[k], buffer[NI + k]);
      for (size_t k = 0; k < NO; ++k)
        g[k] = io(args.grad_out[k], Op::outputs[k], buffer[NI + NO + k]);
      for (size_t k = 0; k < NI; ++k)
        d[k] = io(target[k], Op::operands[k].along, buffer[NI + 2 * NO + k]);
      for (Index r = begin; r < end; ++r) {
        const A *x[NI], *y[NO], *gy[NO];
        A* dx[NI];
        for (size_t k = 0; k < NI; ++k) x[k] = in[k].load(rows, r);
        for (size_t k = 0; k < NO; ++k) y[k] = out[k].load(rows, r);
        for (size_t k = 0; k < NO; ++k)
          gy[k] = args.grad_out[k].data ? g[k].load(rows, r) : nullptr;
        for (size_t k = 0; k < NI; ++k)
          dx[k] = full[k] ? full[k]->data() + r * rows.n : d[k].target();
        per_isa<A, RowBackward<Op, A>>(
            rows.n, &attrs, static_cast<const A* const*>(x), static_cast<const A* const*>(y),
            static_cast<const A* const*>(gy), static_cast<A* const*>(dx));
        for (size_t k = 0; k < NI; ++k)
          if (!full[k]) d[k].store(rows, r);
      }
    });
    for (size_t k = 0; k < NI; ++k)
      if (full[k]) sum_to(full[k]->data(), {rows.count, rows.n}, args.grad_in[k]);
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
