// sum_to: the reverse of broadcasting.
#include <vector>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/cpu/verbs.h"
#include "minim/core/op_args.h"
#include "minim/core/parallel.h"
#include "minim/core/per_isa.h"
#include "minim/core/sum.h"
#include "minim/core/wide.h"

namespace minim {
namespace {

/// Axes of one kind (kept or summed), outermost first, with neighbours merged.
struct Axes {
  Dims size, from, to;
  void add(Index n, Index from_stride, Index to_stride) {
    if (int l = size.rank() - 1; l >= 0 && from[l] == from_stride * n && to[l] == to_stride * n) {
      size[l] *= n;
      from[l] = from_stride;
      to[l] = to_stride;
      return;
    }
    size.push_back(n);
    from.push_back(from_stride);
    to.push_back(to_stride);
  }
  /// Offset of row-major element i, by the given strides.
  Index offset(Index i, const Dims& stride) const {
    Index at = 0;
    for (int d = size.rank(); d-- > 0; i /= size[d]) at += i % size[d] * stride[d];
    return at;
  }
};

constexpr Index kAtOnce = 4 * kSumBlock;  // four blocks in flight

/// Adds x[0], ... x[n - 1], n <= kAtOnce, to the running totals.
template <class A>
struct SumBlocks {
  static void run(const A* x, Index n, A* total) {
    if (n == kAtOnce) {
      A lanes[4][kLanes] = {};
      for (Index j = 0; j < kSumBlock; j += kLanes)
        for (Index b = 0; b < 4; ++b)
          for (Index l = 0; l < kLanes; ++l) lanes[b][l] += x[b * kSumBlock + j + l];
      for (Index b = 0; b < 4; ++b)
        for (Index l = 0; l < kLanes; ++l) total[l] += lanes[b][l];
      return;
    }
    for (Index begin = 0; begin < n; begin += kSumBlock) {
      A lanes[kLanes] = {};
      sum_block(
          begin, std::min(n, begin + kSumBlock), [=](Index j) { return x[j]; }, lanes);
      for (Index l = 0; l < kLanes; ++l) total[l] += lanes[l];
    }
  }
};

template <class A>
struct Sum {
  const void* from;
  DType dtype;
  const Arg& to;
  Axes kept, summed;
  Index outputs, terms, by;  ///< by: what sums are divided by

  /// Stores the totals of outputs first, ... first + n - 1.
  void store(Index output, A* values, Index n, Index stride) const {
    for (Index i = 0; i < n; ++i)
      values[i] = !is_finite(values[i]) ? wide(output + i)
                  : by == 1             ? values[i]
                                        : values[i] / A(by);
    store_run(advance(to.data, to.dtype, kept.offset(output, kept.to)), to.dtype, stride, n,
              values);
  }
  const A* load(Index at, Index stride, Index n, A* buffer) const {
    return load_run(advance(from, dtype, at), dtype, stride, n, buffer);
  }
  /// Terms first, ... first + n - 1 of the output that starts at `base`.
  const A* load_terms(Index base, Index first, Index n, A* buffer) const {
    const int last = summed.size.rank() - 1;
    const Index inner = last < 0 ? 1 : summed.size[last], step = last < 0 ? 1 : summed.from[last];
    for (Index i = 0, run; i < n; i += run) {
      run = std::min(n - i, inner - (first + i) % inner);
      const A* x = load(base + summed.offset(first + i, summed.from), step, run, buffer + i);
      if (run == n) return x;
      if (x != buffer + i) std::copy(x, x + run, buffer + i);
    }
    return buffer;
  }

  /// An output whose sum has left A, or of whose terms one is not finite.
  A wide(Index output) const {
    if constexpr (std::is_integral_v<A>) return 0;
    const Index base = kept.offset(output, kept.from);
    Wider<A> total = 0;
    A buffer[kAtOnce];
    for (Index at = 0, m; at < terms; at += m) {
      m = std::min(terms - at, kAtOnce);
      const A* x = load_terms(base, at, m, buffer);
      total += sum16<Wider<A>>(m, [=](Index j) { return Wider<A>(x[j]); });
    }
    return A(total / Wider<A>(A(by)));
  }

  /// Terms lie along the run: one output at a time.
  void horizontal() const {
    constexpr Index kPart = 1 << 16;  // a longer single sum is cut into parts that threads share
    parallel_for(outputs, std::max<Index>(1, 4096 / std::max<Index>(1, terms)),
                 [&](Index begin, Index end) {
                   for (Index o = begin; o < end; ++o) {
                     const Index base = kept.offset(o, kept.from);
                     auto part = [&](Index at, Index n) {
                       A total[kLanes] = {}, buffer[kAtOnce];
                       for (Index m; n > 0; at += m, n -= m) {
                         m = std::min(n, kAtOnce);
                         per_isa<A, SumBlocks<A>>(load_terms(base, at, m, buffer), m,
                                                  static_cast<A*>(total));
                       }
                       return tree_sum(total);
                     };
                     Index parts = (terms + kPart - 1) / kPart;
                     A total;
                     if (parts <= 1) {
                       total = part(0, terms);
                     } else {
                       std::vector<A> partial(static_cast<size_t>(parts));
                       parallel_for(parts, 1, [&](Index b, Index e) {
                         for (Index p = b; p < e; ++p)
                           partial[size_t(p)] = part(p * kPart, std::min(kPart, terms - p * kPart));
                       });
                       total = sum16<A>(parts, [&](Index p) { return partial[size_t(p)]; });
                     }
                     store(o, &total, 1, 1);
                   }
                 });
  }

  /// Outputs lie along the run: a strip of columns at a time, each summed in the same order as
  /// above.
  void vertical() const {
    constexpr Index kStrip = 64;
    int last = kept.size.rank() - 1;
    Index columns = kept.size[last], strips = (columns + kStrip - 1) / kStrip;
    parallel_for(outputs / columns * strips, 1, [&](Index begin, Index end) {
      for (Index unit = begin; unit < end; ++unit) {
        Index first = unit / strips * columns + unit % strips * kStrip;
        Index n = std::min(kStrip, columns - unit % strips * kStrip);
        const Index base = kept.offset(first, kept.from);
        A buffer[kStrip], total[kLanes][kStrip] = {}, lanes[kLanes][kStrip] = {};
        auto flush = [&] {
          for (Index l = 0; l < kLanes; ++l)
            for (Index c = 0; c < kStrip; ++c) {
              total[l][c] += lanes[l][c];
              lanes[l][c] = 0;
            }
        };
        for (Index r = 0; r < terms; ++r) {
          if (r > 0 && r % kSumBlock == 0) flush();
          const A* row = load(base + summed.offset(r, summed.from), 1, n, buffer);
          A* lane = lanes[r % kLanes];
          for (Index c = 0; c < n; ++c) lane[c] += row[c];
        }
        flush();
        for (Index o = kLanes / 2; o > 0; o /= 2)
          for (Index l = 0; l < o; ++l)
            for (Index c = 0; c < n; ++c) total[l][c] += total[l + o][c];
        store(first, total[0], n, kept.to[last]);
      }
    });
  }
};

template <class A>
void sum_dense(const void* from, DType dtype, const Shape& shape, const Arg& to, Index by) {
  Strides source = contiguous_strides(shape), target = to.strides;
  Sum<A> sum{from, dtype, to, {}, {}, to.shape.numel(), 1, by};
  int shift = shape.rank() - to.shape.rank();
  for (int i = 0; i < shape.rank(); ++i) {
    bool is_summed = i < shift || (to.shape[i - shift] == 1 && shape[i] != 1);
    if (is_summed) {
      sum.summed.add(shape[i], source[i], 0);
      sum.terms *= shape[i];
    } else if (shape[i] != 1) {
      sum.kept.add(shape[i], source[i], target[i - shift]);
    }
  }
  if (sum.outputs == 0) return;
  bool columns = sum.kept.size.rank() > 0 && sum.kept.from[sum.kept.size.rank() - 1] == 1;
  if (columns && sum.terms > 0)
    sum.vertical();
  else
    sum.horizontal();
}

template <class A>
void sum_as(const Arg& from, const Arg& to, Index by) {
  const Strides dense = contiguous_strides(from.shape);
  if (from.strides == dense && (is_floating(from.dtype) || std::is_integral_v<A>))
    return sum_dense<A>(from.data, from.dtype, from.shape, to, by);
  Scratch<A> copied(size_t(from.shape.numel()));
  cpu::copy(from, {copied.data(), dtype_for<A>(), from.shape, dense, true});
  sum_dense<A>(copied.data(), dtype_for<A>(), from.shape, to, by);
}

}  // namespace

template <class A>
void sum_to(const A* from, const Shape& shape, const Arg& to, Index by) {
  sum_dense<A>(from, dtype_for<A>(), shape, to, by);
}
template void sum_to(const float*, const Shape&, const Arg&, Index);
template void sum_to(const double*, const Shape&, const Arg&, Index);
template void sum_to(const int64_t*, const Shape&, const Arg&, Index);

void cpu::sum_to(const Arg& from, const Arg& to, Index by) {
  switch (compute_in(promote_types(from.dtype, to.dtype))) {
    case Compute::f32:
      return sum_as<float>(from, to, by);
    case Compute::f64:
      return sum_as<double>(from, to, by);
    case Compute::i64:
      return sum_as<int64_t>(from, to, by);
  }
}

}  // namespace minim
