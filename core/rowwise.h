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
  /// From one row to the next, where that is always the same; else -1.
  Index step(const Strides& strides) const {
    Index step = -1, size = 1;
    for (int i = shape.rank(); i-- > 0;) {
      if (mask >> i & 1 || shape[i] == 1) continue;
      if (size == 1) step = strides[i];
      if (strides[i] != step * size) return -1;
      size *= shape[i];
    }
    return size == 1 ? 0 : step;
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

/// Rows side by side along a last axis that is kept are loaded and stored together, as lines across
/// them.
struct Together {
  static constexpr Index kMost = 128;
  Index most = 1, stride = 0;  ///< at a time; from row to row of a buffer
  Index begin = 0, end = 0;    ///< the rows that are worked on

  explicit Together(const Rows& rows) : stride((rows.n + 16) / 16 * 16) {
    const int last = rows.shape.rank() - 1;  // their buffers stay in L2, their lines are long
    if (last > 0 && !(rows.mask >> last & 1) && rows.n > 1 && rows.n < 1 << 18 &&
        rows.shape[last] > 3)
      most = std::clamp<Index>((1 << 17) / rows.n / 16 * 16, 16, kMost);
  }
  Together() = default;
  Together of(Index from, Index to) const {
    Together part = *this;
    part.begin = from, part.end = to;
    return part;
  }
  /// The first of those that are loaded together with row r, and the one after them.
  std::pair<Index, Index> around(const Rows& rows, Index r) const {
    const Index axis = rows.shape[rows.shape.rank() - 1], at = r % axis, first = r - at % most;
    return {std::max(begin, first), std::min({end, first + most, r - at + axis})};
  }
};

/// One operand, output or gradient as rows of A.
template <class A>
struct RowIo {
  const Arg* arg = nullptr;
  Along along = Along::row;
  A* buffer = nullptr;
  Strides strides{};    ///< along::each: over the full shape, 0 on row axes
  Index step = -1;      ///< Rows::step
  bool direct = false;  ///< a row is a dense run of A
  Together together{};

  const A* load(const Rows& rows, Index r) const {
    if (!arg->defined) return nullptr;
    if (crosses()) {
      const auto [first, last] = together.around(rows, r);
      if (r == first) load_lines(rows, first, last - first);
      return buffer + (r - first) * together.stride;
    }
    const Index n = size(rows);
    if (!arg->data) return buffer;
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
  A* target(const Rows& rows, Index r) const {
    if (!arg->data) return nullptr;
    if (crosses()) return buffer + (r - together.around(rows, r).first) * together.stride;
    return direct ? reinterpret_cast<A*>(at(rows, r)) : buffer;
  }
  Index size(const Rows& rows) const { return along == Along::each ? 1 : rows.n; }
  void store(const Rows& rows, Index r) const {
    if (!arg->data || direct) return;
    if (crosses()) {
      const auto [first, last] = together.around(rows, r);
      if (r == last - 1) store_lines(rows, first, last - first);
      return;
    }
    if (along == Along::each) return store_run(at(rows, r), arg->dtype, 1, 1, buffer);
    rows.runs(strides, [&](Index offset, Index run, Index stride, Index first) {
      store_run(advance(at(rows, r), arg->dtype, offset), arg->dtype, stride, run, buffer + first);
    });
  }
  std::byte* at(const Rows& rows, Index r) const {
    return advance(arg->data, arg->dtype, step >= 0 ? r * step : rows.offset(r, strides));
  }

 private:
  static constexpr Index kLines = 16;  // at a time
  bool crosses() const {
    return together.most > 1 && !direct && along == Along::row && arg->data &&
           strides[strides.rank() - 1] == 1;
  }
  void load_lines(const Rows& rows, Index r, Index m) const {
    lines(rows, r, m, [&](const std::byte* p, Index step, Index n, A* to) {
      A block[kLines][Together::kMost + 16];
      const A* line[kLines];
      for (Index j = 0; j < n; ++j)
        line[j] = load_run(advance(p, arg->dtype, j * step), arg->dtype, 1, m, block[j]);
      for (Index c = 0; c < m; ++c)
        for (Index j = 0; j < n; ++j) to[c * together.stride + j] = line[j][c];
    });
  }
  void store_lines(const Rows& rows, Index r, Index m) const {
    lines(rows, r, m, [&](std::byte* p, Index step, Index n, const A* from) {
      A block[kLines][Together::kMost + 16];
      for (Index c = 0; c < m; ++c)
        for (Index j = 0; j < n; ++j) block[j][c] = from[c * together.stride + j];
      for (Index j = 0; j < n; ++j)
        store_run(advance(p, arg->dtype, j * step), arg->dtype, 1, m, block[j]);
    });
  }
  /// Calls f(start, step, n, where in the buffer) for up to kLines lines across the m rows from r.
  template <class F>
  void lines(const Rows& rows, Index r, Index m, F f) const {
    std::byte* start = at(rows, r);
    const Index bytes = m * Index(size_of(arg->dtype));
    rows.runs(strides, [&](Index offset, Index run, Index step, Index first) {
      for (Index j = 0; j < run; j += kLines) {
        std::byte* p = advance(start, arg->dtype, offset + j * step);
        for (Index k = kLines; k < std::min(2 * kLines, run - j); ++k)  // pages apart, unforeseen
          for (Index b = 0; b < bytes; b += 64)
            __builtin_prefetch(advance(p, arg->dtype, k * step) + b, 1);
        f(p, step, std::min(kLines, run - j), buffer + first + j);
      }
    });
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
  /// @param sum[k] where a shared operand's gradients add up
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
    io.step = rows.step(io.strides);
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
        for (const Arg& x : args.in)  // written over what is read: beside it first
          d[k].direct = d[k].direct && x.data != args.grad_in[k].data;
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
