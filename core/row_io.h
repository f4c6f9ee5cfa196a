// core/row_io.h -- rows of operands, results and gradients in and out of buffers of the compute
// type, for rowwise.h.
#pragma once
#include <algorithm>
#include <utility>

#include "minim/core/convert.h"
#include "minim/core/functor.h"
#include "minim/core/op_args.h"

namespace minim {

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
  /// From one row to the next within a line of them, which is what the last kept axis numbers.
  struct Step {
    Index by = 0;
    bool even = false;  ///< from line to line, too
  };
  Step step(const Strides& strides) const {
    Step step{.even = true};
    Index size = 1;
    for (int i = shape.rank(); i-- > 0;) {
      if (mask >> i & 1 || shape[i] == 1) continue;
      if (size == 1) step.by = strides[i];
      step.even = step.even && strides[i] == step.by * size;
      size *= shape[i];
    }
    return step;
  }
  /// Rows in a line.
  Index line() const {
    for (int i = shape.rank(); i-- > 0;)
      if (!(mask >> i & 1) && shape[i] != 1) return shape[i];
    return 1;
  }
  /// Whether the elements of a row are neighbours.
  bool dense(const Strides& strides) const {
    Index next = 1;
    for (int i = shape.rank(); i-- > 0;) {
      if (!(mask >> i & 1) || shape[i] == 1) continue;
      if (strides[i] != next) return false;
      next *= shape[i];
    }
    return true;
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

/// Neighbouring rows: row i is what starts at data + i * step.
template <class A>
struct RowRun {
  A* data = nullptr;
  Index step = 0;
  A* operator[](Index i) const { return data + i * step; }
};

/// One operand, output or gradient as rows of A.
template <class A>
struct RowIo {
  const Arg* arg = nullptr;
  Along along = Along::row;
  A* buffer = nullptr;  ///< for one row after another
  Strides strides{};    ///< along::each: over the full shape, 0 on row axes
  Rows::Step step{};
  bool direct = false;  ///< a row is a dense run of A
  bool packed = false;  ///< rows are dense, and follow on each other
  Together together{};

  // One row of an Along::row after another, each through `buffer`, from together.begin to .end: for
  // ops that are not rowwise (channel norms, pools, argmax).

  /// Not inlined: the loops of callers are worse with it between them.
  [[gnu::noinline]] const A* load(const Rows& rows, Index r) const {
    if (!arg->data || !arg->defined) return arg->defined ? buffer : nullptr;
    if (!crosses()) return load_row(rows, r, buffer);
    const auto [first, last] = together.around(rows, r);
    if (r == first) load_lines(rows, first, last - first, buffer);
    return buffer + (r - first) * together.stride;
  }
  A* target(const Rows& rows, Index r) const {
    if (!arg->data) return nullptr;
    return crosses() ? buffer + (r - together.around(rows, r).first) * together.stride : buffer;
  }
  void store(const Rows& rows, Index r) const {
    if (!arg->data) return;
    if (!crosses()) return store_row(rows, r, buffer);
    const auto [first, last] = together.around(rows, r);
    if (r == last - 1) store_lines(rows, first, last - first, buffer);
  }

  // Runs of rows, for rowwise.h, which sets `direct` where a row is read and written as it lies.

  /// Rows r .. r + m - 1, of one line, or of any lines where step.even; each may be in `to`.
  RowRun<const A> load(const Rows& rows, Index r, Index m, A* to) const {
    if (!arg->defined) return {};
    if (!arg->data) return {to, 0};
    if (along == Along::shared)  // one axis: a column of a matrix is one, too
      return {
          load_run(arg->data, arg->dtype, arg->shape.rank() == 1 ? arg->strides[0] : 1, rows.n, to),
          0};
    if (direct) return {reinterpret_cast<const A*>(at(rows, r)), step.by};
    if (along == Along::each) return {load_run(at(rows, r), arg->dtype, step.by, m, to), 1};
    if (packed) return {load_run(at(rows, r), arg->dtype, 1, m * rows.n, to), rows.n};
    if (crosses()) load_lines(rows, r, m, to);
    for (Index i = 0; i < m && !crosses(); ++i) load_row(rows, r + i, to + i * together.stride);
    return {to, together.stride};
  }
  /// Where they are put before store: in place, or in `from`.
  RowRun<A> target(const Rows& rows, Index r, A* from) const {
    if (!arg->data) return {};
    if (direct) return {reinterpret_cast<A*>(at(rows, r)), step.by};
    if (along != Along::row) return {from, along == Along::each ? 1 : 0};
    return {from, packed ? rows.n : together.stride};
  }
  void store(const Rows& rows, Index r, Index m, const A* from) const {
    if (!arg->data || direct) return;
    if (along == Along::each) return store_run(at(rows, r), arg->dtype, step.by, m, from);
    if (packed) return store_run(at(rows, r), arg->dtype, 1, m * rows.n, from);
    if (crosses()) return store_lines(rows, r, m, from);
    for (Index i = 0; i < m; ++i) store_row(rows, r + i, from + i * together.stride);
  }
  std::byte* at(const Rows& rows, Index r) const {
    return advance(arg->data, arg->dtype, step.even ? r * step.by : rows.offset(r, strides));
  }

 private:
  static constexpr Index kLines = 16;  // at a time
  bool crosses() const {
    return together.most > 1 && !direct && along == Along::row && arg->data &&
           strides[strides.rank() - 1] == 1;
  }
  const A* load_row(const Rows& rows, Index r, A* to) const {
    const A* direct = nullptr;
    rows.runs(strides, [&](Index offset, Index run, Index stride, Index first) {
      const A* p =
          load_run(advance(at(rows, r), arg->dtype, offset), arg->dtype, stride, run, to + first);
      if (run == rows.n)
        direct = p;
      else if (p != to + first)
        std::copy(p, p + run, to + first);
    });
    return direct ? direct : to;
  }
  void store_row(const Rows& rows, Index r, const A* from) const {
    rows.runs(strides, [&](Index offset, Index run, Index stride, Index first) {
      store_run(advance(at(rows, r), arg->dtype, offset), arg->dtype, stride, run, from + first);
    });
  }
  void load_lines(const Rows& rows, Index r, Index m, A* buffer) const {
    lines(rows, r, m, [&](const std::byte* p, Index step, Index n, Index first) {
      A* to = buffer + first;
      A block[kLines][Together::kMost + 16];
      const A* line[kLines];
      for (Index j = 0; j < n; ++j)
        line[j] = load_run(advance(p, arg->dtype, j * step), arg->dtype, 1, m, block[j]);
      for (Index c = 0; c < m; ++c)
        for (Index j = 0; j < n; ++j) to[c * together.stride + j] = line[j][c];
    });
  }
  void store_lines(const Rows& rows, Index r, Index m, const A* buffer) const {
    lines(rows, r, m, [&](std::byte* p, Index step, Index n, Index first) {
      const A* from = buffer + first;
      A block[kLines][Together::kMost + 16];
      for (Index c = 0; c < m; ++c)
        for (Index j = 0; j < n; ++j) block[j][c] = from[c * together.stride + j];
      for (Index j = 0; j < n; ++j)
        store_run(advance(p, arg->dtype, j * step), arg->dtype, 1, m, block[j]);
    });
  }
  /// Calls f(start, step, n, where in a row) for up to kLines lines across the m rows from r.
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
        f(p, step, std::min(kLines, run - j), first + j);
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

}  // namespace cpu
}  // namespace minim
