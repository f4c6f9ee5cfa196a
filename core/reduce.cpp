// sum_to: the reverse of broadcasting.
#include <vector>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/op_args.h"
#include "minim/core/parallel.h"
#include "minim/core/sum.h"

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

template <class A>
struct Sum {
  const A* from;
  const Arg& to;
  Axes kept, summed;
  Index outputs, terms;

  void store(Index output, const A* values, Index n, Index stride) const {
    store_run(advance(to.data, to.dtype, kept.offset(output, kept.to)), to.dtype, stride, n,
              values);
  }

  /// Terms lie along the run: one output at a time.
  void horizontal() const {
    constexpr Index kPart = 1 << 16;  // a longer single sum is cut into parts that threads share
    bool dense = summed.size.rank() <= 1 && (terms <= 1 || summed.from[0] == 1);
    parallel_for(outputs, std::max<Index>(1, 4096 / std::max<Index>(1, terms)),
                 [&](Index begin, Index end) {
                   for (Index o = begin; o < end; ++o) {
                     const A* x = from + kept.offset(o, kept.from);
                     auto part = [&](Index at, Index n) {
                       if (dense) return sum16<A>(n, [=](Index r) { return x[at + r]; });
                       return sum16<A>(
                           n, [=, this](Index r) { return x[summed.offset(at + r, summed.from)]; });
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
        const A* x = from + kept.offset(first, kept.from);
        A total[kLanes][kStrip] = {}, lanes[kLanes][kStrip] = {};
        auto flush = [&] {
          for (Index l = 0; l < kLanes; ++l)
            for (Index c = 0; c < kStrip; ++c) {
              total[l][c] += lanes[l][c];
              lanes[l][c] = 0;
            }
        };
        for (Index r = 0; r < terms; ++r) {
          if (r > 0 && r % kSumBlock == 0) flush();
          const A* row = x + summed.offset(r, summed.from);
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

}  // namespace

template <class A>
void sum_to(const A* from, const Shape& shape, const Arg& to) {
  Strides source = contiguous_strides(shape), target = to.strides;
  Sum<A> sum{from, to, {}, {}, to.shape.numel(), 1};
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

template void sum_to(const float*, const Shape&, const Arg&);
template void sum_to(const double*, const Shape&, const Arg&);
template void sum_to(const int64_t*, const Shape&, const Arg&);

}  // namespace minim
