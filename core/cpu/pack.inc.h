// core/cpu/pack.inc.h -- operands into panels, for kernels.inc.h and kernels_v4_bf16.cpp, which
// include it after tile.inc.h; the former's rules hold here too.

namespace minim {
namespace {

/// Exchanges, between two rows `by` apart of squares, the blocks of `by` lanes off the diagonals.
template <int by, class V, int... l>
void exchange(V& x, V& y, std::integer_sequence<int, l...>) {
  constexpr int n = sizeof...(l);
  const V low = __builtin_shufflevector(x, y, (l & by ? n + l - by : l)...);
  y = __builtin_shufflevector(x, y, (l & by ? n + l : l + by)...);
  x = low;
}

/// Transposes squares of n x n that n vectors hold side by side: log2(n) rounds of exchanges
/// (Eklundh, 1972).
template <int by = 1, class V, int64_t n>
[[gnu::always_inline]] inline void transpose(V (&rows)[n]) {
  constexpr int lanes = int(sizeof(V) / sizeof(rows[0][0]));
  if constexpr (by < n) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i)
      if (!(i & by)) exchange<by>(rows[i], rows[i + by], std::make_integer_sequence<int, lanes>{});
    transpose<2 * by>(rows);
  }
}

/// Both side by side in one vector.
template <class V, int... l>
auto join(V x, V y, std::integer_sequence<int, l...>) {
#if defined(__AVX2__)  // of which GCC 12 makes a load and a shuffle
  if constexpr (sizeof(V) == 16) {
    using Both = decltype(__builtin_shufflevector(x, y, l...));
    return Both(_mm256_insertf128_ps(_mm256_castps128_ps256(__m128(x)), __m128(y), 1));
  }
#endif
  return __builtin_shufflevector(x, y, l...);
}
constexpr int64_t kSquareBytes = 16;
/// Rows of squares of n x n that lie side by side in a vector of `lanes`.
template <int64_t n, int64_t lanes, class From, class P>
auto row_of_squares(const P* const* squares, int64_t at) {
  if constexpr (lanes == n)
    return From::template load<n>(*squares + at);
  else
    return join(row_of_squares<n, lanes / 2, From>(squares, at),
                row_of_squares<n, lanes / 2, From>(squares + lanes / 2 / n, at),
                std::make_integer_sequence<int, int(lanes)>{});
}

/// `lanes` lines along k from `line` on, n elements each, into a part of a panel.
template <class A, int64_t lanes, class From>
void interleave_lines(From from, int64_t line, int64_t k, int64_t n, int64_t width, A* to) {
  constexpr int64_t kSquare = kSquareBytes / int64_t(sizeof(A)), kMany = lanes / kSquare;
  using V = VectorOf<A, lanes * int64_t(sizeof(A))>;
  const int64_t end = k + n, whole = end < from.whole() ? end : from.whole();
  decltype(from.at(0, 0)) at[kMany];
  for (int64_t i = 0; i < kMany; ++i) at[i] = from.at(line + i * kSquare, k);
  for (; k + kSquare <= whole; k += kSquare) {
    typename V::type square[kSquare];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kSquare; ++i)
      square[i] = row_of_squares<kSquare, lanes, From>(at, i * from.stride);
    transpose(square);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kSquare; ++i, to += width) V::store(to, square[i]);
    for (int64_t i = 0; i < kMany; ++i) at[i] += from.at(0, kSquare) - from.at(0, 0);
  }
  for (; k < end; ++k, to += width)
    for (int64_t i = 0; i < lanes; ++i) to[i] = from.one(line + i, k);
}

/// `lines` lines from `line` on into one panel, interleaved.
/// @param from gives elements of a panel: one(line, k), and side by side from at(line, k) on,
/// load<lanes>
template <class A, class From>
void interleave(const From& from, int64_t line, int64_t lines, int64_t k, int64_t n, int64_t width,
                A* panel) {
  constexpr int64_t kSquare = kSquareBytes / int64_t(sizeof(A));
  const int64_t count = lines < width ? lines : width;
  int64_t l = 0;
  for (; l + kLanes<A> <= count; l += kLanes<A>)
    interleave_lines<A, kLanes<A>>(from, line + l, k, n, width, panel + l);
  for (; l + kSquare <= count; l += kSquare)
    interleave_lines<A, kSquare>(from, line + l, k, n, width, panel + l);
  for (int64_t e = k; l < width && e < k + n; ++e, panel += width)
    for (int64_t i = l; i < width; ++i) panel[i] = i < lines ? from.one(line + i, e) : A(0);
}

/// Lines that lie side by side: of each k, `width` elements at a time go to a panel.
template <class A, int64_t width, class From>
void split(const From& from, int64_t n, int64_t depth, A* panels) {
  constexpr int64_t lanes = width % kLanes<A> == 0 ? kLanes<A> : width % 4 == 0 ? 4 : 2;
  constexpr int64_t kTogether = 8 * width;  // lines
  constexpr int64_t kAhead = 6;             // of k: each begins anew for the CPU's own prefetching
  for (int64_t first = 0; first < n; first += kTogether, panels += kTogether * depth)
    for (int64_t k = 0; k < depth; ++k) {
      A* to = panels + k * width;
      int64_t line = first, end = n - first < kTogether ? n : first + kTogether;
      for (int64_t l = line; l < end; l += 64 / int64_t(sizeof(*from.at(l, k))))
        __builtin_prefetch(from.at(l, k + kAhead));
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
        interleave(from, line, n - line < width ? n - line : width, k,
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
