// core/cpu/attention.inc.h -- the kernels of attention for kernels.inc.h, which includes it and
// whose rules hold here too.

namespace minim {
namespace {

/// math::exp for what softmax needs: x of at most about 1; 0 where the result would be subnormal.
Vector<float> exp_of(Vector<float> x) {
  constexpr float kRound = 0x1.8p23f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const Vector<float> least = broadcast(-87.0f), y = x < least ? least : x;
  const Vector<float> shifted = multiply_add(y, broadcast(1.44269504f), broadcast(kRound));
  const Vector<float> n = shifted - kRound;
  const Vector<float> r =
      multiply_add(n, broadcast(-kLn2Low), multiply_add(n, broadcast(-kLn2High), y));
  constexpr float kRest[] = {0.001394621598f, 0.0083332651f, 0.0416662679f, 0.1666666686f,
                             0.5000000079f};
  Vector<float> q = broadcast(0.0001991800696f);
  for (float c : kRest) q = multiply_add(q, r, broadcast(c));
  typedef uint32_t Bits __attribute__((vector_size(kVectorBytes)));
  const Bits exponent = (__builtin_bit_cast(Bits, shifted) + 127u) << 23;
  return (x < least ? Vector<float>{} : multiply_add(r * r, q, r) + 1.0f) *
         __builtin_bit_cast(Vector<float>, exponent);
}
Vector<double> exp_of(Vector<double> x) {
  for (int64_t l = 0; l < kLanes<double>; ++l) x[l] = __builtin_exp(x[l]);
  return x;
}

/// 16 numbers of a row side by side, whatever the ISA: every sum is 16 chains and then a tree.
constexpr int64_t kRowLanes = 16;
template <class A>
struct Lanes {
  static constexpr int64_t kParts = kRowLanes / kLanes<A>;
  Vector<A> part[kParts];

  explicit Lanes(A x) {
    for (Vector<A>& v : part) v = broadcast(x);
  }
  /// f(part of the lanes, the numbers at j of the part) for all n numbers.
  template <class F>
  void each(int64_t n, F f) {
    for (int64_t j = 0; j < n; j += kRowLanes)
#pragma GCC unroll 8
      for (int64_t v = 0; v < kParts; ++v) f(part[v], j + v * kLanes<A>);
  }
  /// f of the parts, which leaves as many numbers as a vector holds.
  template <class F>
  Vector<A> folded(F f) const {
    Vector<A> all = part[0];
    for (int64_t v = 1; v < kParts; ++v) all = f(all, part[v]);
    return all;
  }
};

/// Lane i becomes f of all numbers of rows[i], as a tree: the halves of a row meet, then its
/// quarters, and so on. All rows together take as many steps as four of them one by one.
template <int by, class V, int64_t n, class F>
V fold_rows(V (&rows)[n], F f) {
#pragma GCC unroll 8
  for (int i = 0; i < by; ++i) {
    exchange<by>(rows[i], rows[i + by], std::make_integer_sequence<int, int(n)>{});
    rows[i] = f(rows[i], rows[i + by]);
  }
  if constexpr (by == 1)
    return rows[0];
  else
    return fold_rows<by / 2>(rows, f);
}
/// then(i, the folds of row(i), row(i + 1), ..., one in each lane), for all rows.
template <class A, class F, class Row, class Then>
void fold_each(int64_t rows, F f, Row row, Then then) {
  constexpr int64_t kMany = kLanes<A>;
  for (int64_t i = 0; i < rows; i += kMany) {
    Vector<A> all[kMany];
    for (int64_t l = 0; l < kMany; ++l) all[l] = i + l < rows ? row(i + l).folded(f) : Vector<A>{};
    then(i, fold_rows<int(kMany / 2)>(all, f));
  }
}

constexpr auto add = [](auto x, auto y) { return x + y; };
constexpr auto larger = [](auto x, auto y) { return x > y ? x : y; };

int64_t whole(int64_t n) { return (n + kRowLanes - 1) / kRowLanes * kRowLanes; }
/// How many of row i's n numbers count.
int64_t count_of(int64_t i, int64_t n, int64_t first) {
  const int64_t count = first + i < n ? first + i : n;
  return count < 0 ? 0 : count;
}
/// How many of them, in whole lanes, a product with whole tiles of rows or of keys may meet.
int64_t reach_of(int64_t i, int64_t n, int64_t first) {
  return whole(count_of(i, n, first + kTileRows - 1));
}

constexpr float kInf = __builtin_inff();
template <class A>
constexpr A kCount[kRowLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// s = f(part of the lanes, scale * s), where the numbers of a row that do not count are -infinity
/// up to the next multiple of 16, and s becomes 0 after it.
template <class A, class F>
void scaled(int64_t i, int64_t n, int64_t first, A scale, A* s, Lanes<A>& lanes, F f) {
  using V = VectorOf<A>;
  const int64_t count = count_of(i, n, first), end = whole(count);
  lanes.each(end, [=](Vector<A>& part, int64_t j) {
    const Vector<A> x = V::load(s + j) * scale;
    V::store(s + j,
             f(part, V::load(kCount<A>) < broadcast(A(count - j)) ? x : broadcast(A(-kInf))));
  });
  static_assert(kTileRows <= kRowLanes);
  if (end < reach_of(i, n, first))
    lanes.each(kRowLanes, [=](Vector<A>&, int64_t j) { V::store(s + end + j, Vector<A>{}); });
}

/// In passes over the rows, so that many of them are under way at once.
template <class A>
void softmax(int64_t rows, int64_t n, int64_t first, A scale, A* s, int64_t stride, A* max, A* sum,
             A* shrink) {
  using V = VectorOf<A>;
  const auto finite = [](auto x) { return x == A(-kInf) ? decltype(x){} : x; };
  fold_each<A>(
      rows, larger,
      [=](int64_t i) {
        Lanes<A> most(max[i]);
        scaled(i, n, first, scale, s + i * stride, most, [](Vector<A>& m, Vector<A> x) {
          m = larger(x, m);
          return x;
        });
        return most;
      },
      [=](int64_t i, Vector<A> most) {
        V::store(shrink + i, exp_of(V::load(max + i) - finite(most)));
        V::store(max + i, most);
      });
  fold_each<A>(
      rows, add,
      [=](int64_t i) {
        Lanes<A> total(0);
        const A shift = finite(max[i]);
        total.each(whole(count_of(i, n, first)),
                   [=, row = s + i * stride](Vector<A>& t, int64_t j) {
                     const Vector<A> e = exp_of(V::load(row + j) - shift);
                     V::store(row + j, e);
                     t += e;
                   });
        return total;
      },
      [=](int64_t i, Vector<A> total) {
        V::store(sum + i, V::load(sum + i) * V::load(shrink + i) + total);
      });
}

template <class A>
void probabilities(int64_t rows, int64_t n, int64_t first, A scale, A* s, int64_t stride,
                   const A* max, const A* sum) {
  for (int64_t i = 0; i < rows; ++i, s += stride) {
    Lanes<A> none(0);
    scaled(i, n, first, scale, s, none,
           [=](Vector<A>&, Vector<A> x) { return exp_of(x - max[i]) / sum[i]; });
  }
}

template <class A>
void weigh(int64_t rows, int64_t n, int64_t first, const A* p, const A* d, int64_t stride,
           A* mean) {
  using V = VectorOf<A>;
  fold_each<A>(
      rows, add,
      [=](int64_t i) {
        Lanes<A> total(0);
        total.each(whole(count_of(i, n, first)), [=](Vector<A>& t, int64_t j) {
          const Vector<A> x = V::load(p + i * stride + j);
          t += x == A(0) ? Vector<A>{} : x * V::load(d + i * stride + j);
        });
        return total;
      },
      [=](int64_t i, Vector<A> total) {
        for (int64_t l = 0; l < kLanes<A> && i + l < rows; ++l) mean[i + l] += total[l];
      });
}

template <class A>
void center(int64_t rows, int64_t n, int64_t first, const A* p, A* d, int64_t stride,
            const A* mean) {
  using V = VectorOf<A>;
  for (int64_t i = 0; i < rows; ++i, p += stride, d += stride)
    for (int64_t j = 0; j < reach_of(i, n, first); j += kLanes<A>) {
      const Vector<A> x = V::load(p + j);
      V::store(d + j, x == A(0) ? Vector<A>{} : x * (V::load(d + j) - mean[i]));
    }
}

template <class A>
[[gnu::flatten]] void load(int64_t rows, int64_t width, const void* from, int64_t step,
                           typename Stored<A>::As as, A* to, int64_t stride) {
  for (int64_t i = 0; i < rows; ++i, to += stride) {
    const auto* halves = static_cast<const uint16_t*>(from) + i * step;
    if constexpr (sizeof(A) == sizeof(float)) {
      if (as == Stored<A>::f16) widen_f16(halves, to, width);
      if (as == Stored<A>::bf16) widen_bf16(halves, to, width);
    }
    if (as == Stored<A>::sums)
      for (int64_t j = 0; j < width; ++j) to[j] = (static_cast<const A*>(from) + i * step)[j];
    for (int64_t j = width; j < stride; ++j) to[j] = 0;
  }
}

/// @tparam divide else it is multiplied
template <class A, bool divide>
void store(int64_t rows, int64_t width, A* x, int64_t stride, const A* by, int64_t step,
           const Stored<A>& to) {
  for (int64_t i = 0; i < rows; ++i, x += stride, by += step) {
    A* y = to.as == to.sums ? static_cast<A*>(to.c) + i * to.stride : x;
#pragma GCC ivdep
    for (int64_t j = 0; j < width; ++j) y[j] = divide ? x[j] / *by : x[j] * *by;
    if (to.as != to.sums) store_row<MultiplyAdd>(to, i * to.stride, x, width);
  }
}

template <class A>
constexpr AttentionKernels<A> attention_kernels() {
  return {softmax<A>, probabilities<A>, weigh<A>,      center<A>,
          load<A>,    store<A, false>,  store<A, true>};
}

}  // namespace
}  // namespace minim
