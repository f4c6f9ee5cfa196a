// core/cpu/pack.inc.h -- operands into panels, for kernels.inc.h and pairs.inc.h, which include it
// after tile.inc.h and whose rules hold here too.

namespace minim {
namespace {

/// Exchanges, between two rows `by` apart of a square, the blocks of `by` lanes off its diagonal.
template <int by, class V, int... l>
void exchange(V& x, V& y, std::integer_sequence<int, l...>) {
  constexpr int n = sizeof...(l);
  const V low = __builtin_shufflevector(x, y, (l & by ? n + l - by : l)...);
  y = __builtin_shufflevector(x, y, (l & by ? n + l : l + by)...);
  x = low;
}

/// Transposes a square of vectors: log2(n) rounds of exchanges (Eklundh, 1972).
template <int by = 1, class V, int64_t n>
void transpose(V (&rows)[n]) {
  if constexpr (by < n) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i)
      if (!(i & by)) exchange<by>(rows[i], rows[i + by], std::make_integer_sequence<int, int(n)>{});
    transpose<2 * by>(rows);
  }
}

/// Lines along k from `line` on, `lines` of them, n elements each, into one panel, interleaved.
/// @tparam kWidth the width, where it is known
/// @param from gives elements of a panel: one(line, k), and side by side, many<lanes>(line, k)
template <class A, int64_t kWidth, class From>
void interleave(const From& from, int64_t line, int64_t lines, int64_t k, int64_t n, int64_t width,
                A* panel) {
  constexpr int64_t kSquareBytes = 16;  // larger ones are slower
  constexpr int64_t kSquare = kSquareBytes / int64_t(sizeof(A));
  using V = VectorOf<A, kSquareBytes>;
  if (kWidth > 0) width = kWidth;
  const int64_t end = k + n, whole = end < from.whole() ? end : from.whole();
  for (int64_t l = 0; l < width; l += kSquare, lines -= kSquare) {
    const int64_t room = width - l < kSquare ? width - l : kSquare;
    const bool fits = room == kSquare || room == kWidth % kSquare;
    A* to = panel + l;
    int64_t e = k;
    for (; fits && lines > 0 && e + kSquare <= whole; e += kSquare) {
      typename V::type square[kSquare];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSquare; ++i)
        square[i] = i < lines ? from.template many<kSquare>(line + l + i, e) : typename V::type{};
      transpose(square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSquare; ++i, to += width)
        if (room == kSquare)
          V::store(to, square[i]);
        else
          __builtin_memcpy(to, &square[i], (kWidth % kSquare) * sizeof(A));
    }
    for (; e < end; ++e, to += width)
      for (int64_t i = 0; i < room; ++i) to[i] = i < lines ? from.one(line + l + i, e) : A(0);
  }
}

/// Lines that lie side by side: of each k, `width` elements at a time go to a panel.
template <class A, int64_t width, class From>
void split(const From& from, int64_t n, int64_t depth, A* panels) {
  constexpr int64_t lanes = width % kLanes<A> == 0 ? kLanes<A> : width % 4 == 0 ? 4 : 2;
  constexpr int64_t kTogether = 8 * width;  // lines
  for (int64_t first = 0; first < n; first += kTogether, panels += kTogether * depth)
    for (int64_t k = 0; k < depth; ++k) {
      A* to = panels + k * width;
      int64_t line = first, end = n - first < kTogether ? n : first + kTogether;
      for (; line + width <= end; line += width, to += width * depth)
#pragma GCC unroll 16
        for (int64_t i = 0; i < width; i += lanes)
          VectorOf<A, lanes * int64_t(sizeof(A))>::store(to + i,
                                                         from.template many<lanes>(line + i, k));
      for (int64_t i = 0; line < end && i < width; ++i)
        to[i] = line + i < end ? from.one(line + i, k) : A(0);
    }
}

/// n lines of `depth` elements into panels of `width` lines.
template <class A, int64_t width, class From>
void pack_by(const From& from, int64_t n, int64_t depth, A* panels) {
  constexpr int64_t kRun = 128;  // of such parts of a panel all lines meet in L1
  if constexpr (!From::kAlongK)
    split<A, width>(from, n, depth, panels);
  else
    for (int64_t line = 0; line < n; line += width, panels += width * depth)
      for (int64_t k = 0; k < depth; k += kRun)
        interleave<A, width>(from, line, n - line < width ? n - line : width, k,
                             depth - k < kRun ? depth - k : kRun, width, panels + k * width);
}

template <class A, class From>
void pack_from(const From& from, int64_t n, int64_t depth, int64_t width, A* panels) {
  if (width == kTileRows)
    pack_by<A, kTileRows>(from, n, depth, panels);
  else
    pack_by<A, kTileCols<A>>(from, n, depth, panels);
}

}  // namespace
}  // namespace minim
