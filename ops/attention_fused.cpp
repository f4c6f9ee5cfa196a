// Attention in tiles (Dao, "FlashAttention-2", 2023): a block of queries meets the keys chunk by
// chunk with an online softmax, so that of the (Tq, Tk) scores a thread never holds more than
// kRows x kKeys. Backward makes the tiles again from q, k and two numbers a row: the largest score,
// and the sum of e^(score - largest). Folded into their logarithm, as in the paper, they would
// lose what follows the point where scores are large.
//
// Each number of a result is one chain of multiply-adds in the order of heads, queries or keys:
// neither the threads nor the way in which the work is cut change a bit.
#include <type_traits>

#include "minim/core/cpu/isa.h"
#include "minim/ops/attention.h"

namespace minim::op {
namespace {

constexpr Index kRows = 48, kKeys = 1024;  // kRows: whole tiles of every ISA
constexpr Index kCut = 128;                // keys of a task where heads are few
constexpr Index kManyHeads = 16;           // from here on a head is a task

constexpr Index round_up(Index n, Index to) { return (n + to - 1) / to * to; }

template <class A>
const auto& gemm_kernels() {
  if constexpr (std::is_same_v<A, float>)
    return isa().f32;
  else
    return isa().f64;
}
template <class A>
const auto& attention_kernels() {
  if constexpr (std::is_same_v<A, float>)
    return isa().attention32;
  else
    return isa().attention64;
}

/// x[i][j] / by[i * step], or x[i][j] * by[i * step]
template <bool divide>
struct EachRow {
  template <class A>
  static void run(A* x, Index stride, Index rows, Index width, const A* by, Index step) {
    for (Index i = 0; i < rows; ++i, x += stride, by += step)
      for (Index j = 0; j < width; ++j) x[j] = divide ? x[j] / *by : x[j] * *by;
  }
};

/// A matrix in scratch memory, or an operand.
template <class A>
struct Grid {
  A* data;
  Index stride;
  A* operator[](Index i) const { return data + i * stride; }
};

/// Scratch memory, handed out in parts that begin at cache lines.
template <class A>
class Room {
 public:
  explicit Room(Index n) : all_(size_t(n)), next_(all_.data()) {}
  /// @param stride a multiple of 16
  Grid<A> grid(Index rows, Index stride) {
    return {std::exchange(next_, next_ + rows * stride), stride};
  }
  A* numbers(Index n) { return grid(1, round_up(n, 16)).data; }

 private:
  Scratch<A> all_;
  A* next_;
};

template <class A>
class Fused {
 public:
  /// @param result out[0], or its gradient
  Fused(OpArgs& args, const Arg& result)
      : args_(args), call_(args), result_(result, leading(result.shape, 2)) {
    const Index to = std::max<Index>(16, gemm_kernels<A>().cols);
    width_ = round_up(call_.width, to), value_width_ = round_up(call_.value_width, to);
    // Not a power of two, whose rows would share the sets of a cache.
    keys_ = round_up(call_.keys, to) + 16, chunk_ = round_up(std::min(call_.keys, kKeys), to) + 16;
  }

  void forward() const {
    each_kv_head([&](Index kv) {
      Room<A> room(call_.width * keys_ + call_.keys * (width_ + value_width_));
      const Grid<A> keys = room.grid(call_.width, keys_);
      transpose(load(call_.k[kv], 0, call_.keys, call_.width, room.grid(call_.keys, width_)),
                call_.width, keys);
      const Grid<A> values =
          load(call_.v[kv], 0, call_.keys, call_.value_width, room.grid(call_.keys, value_width_));
      parallel_for(blocks(), 1, [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b) attend(block(kv, b), keys, values);
      });
    });
  }

  void backward() const {
    each_kv_head([&](Index kv) {
      const Index width = width_ + value_width_, grouped = call_.group > 1;
      Room<A> room((call_.width + call_.value_width) * keys_ + (2 + grouped) * call_.keys * width +
                   round_up(rows_of_group(), 16));
      Side side{room.grid(call_.width, keys_),          room.grid(call_.value_width, keys_),
                room.grid(call_.keys, width_),          room.grid(call_.keys, width),
                room.grid(grouped * call_.keys, width), room.numbers(rows_of_group())};
      side.k = load(call_.k[kv], 0, call_.keys, call_.width, side.k);
      transpose(side.k, call_.width, side.keys);
      const Grid<A> values = {side.dkv.data, value_width_};  // not in use yet
      transpose(load(call_.v[kv], 0, call_.keys, call_.value_width, values), call_.value_width,
                side.values);
      if (many_heads()) {
        sum_heads(kv, side, {0, call_.keys, true, true});
      } else {
        parallel_for(blocks(), 1, [&](Index begin, Index end) {
          for (Index b = begin; b < end; ++b)
            differentiate(block(kv, b), side, {0, call_.keys, true, false});
        });
        parallel_for(call_.keys, kCut, [&](Index begin, Index end) {
          sum_heads(kv, side, {begin, end, false, true});
        });
      }
      const Grid<A> sum = grouped ? side.sum : side.dkv;
      store(sum, call_.keys, call_.width, args_.grad_in[1], kv, 0, A(call_.scale));
      store({sum.data + width_, width}, call_.keys, call_.value_width, args_.grad_in[2], kv);
    });
  }

 private:
  /// Up to kRows queries of one head; `row` is the first one's number over all heads.
  struct Block {
    Index head, first, rows, row;
  };
  /// What the blocks of all heads that share k and v read and add to: k and v transposed, k, the
  /// gradients of k and v side by side, of one head and of all, and the mean gradient of each row's
  /// probabilities.
  struct Side {
    Grid<A> keys, values, k, dkv, sum;
    A* mean;
  };
  /// Which keys, and whether the mean and dq are to be found or dk and dv; both for all keys only.
  struct Part {
    Index from, to;
    bool queries, keys;
  };

  bool many_heads() const { return call_.heads / call_.group >= kManyHeads; }
  Index rows_of_group() const { return call_.group * call_.queries; }
  Index blocks() const { return call_.group * ((call_.queries + kRows - 1) / kRows); }
  Block block(Index kv, Index b) const {
    const Index each = blocks() / call_.group, head = kv * call_.group + b / each;
    const Index first = b % each * kRows;
    return {head, first, std::min(kRows, call_.queries - first), head * call_.queries + first};
  }
  template <class F>
  void each_kv_head(F f) const {
    const Index n = call_.heads / call_.group;
    parallel_for(n, many_heads() ? 1 : std::max<Index>(1, n), [&](Index begin, Index end) {
      for (Index kv = begin; kv < end; ++kv) f(kv);
    });
  }

  /// Rows [first, first + n), followed by zeros, in `to` unless they can be read where they are.
  static Grid<A> load(const MatrixRef& from, Index first, Index n, Index width, Grid<A> to) {
    if (from.dtype == dtype_for<A>() && from.col_stride == 1 && width == to.stride)
      return {static_cast<A*>(const_cast<void*>(from.data)) + first * from.row_stride,
              from.row_stride};
    if constexpr (std::is_same_v<A, float>)
      if (is_half(from.dtype) && from.col_stride == 1) {
        const auto widen = from.dtype == DType::f16 ? isa().widen_f16 : isa().widen_bf16;
        const auto* x = static_cast<const uint16_t*>(from.data) + first * from.row_stride;
        for (Index i = 0; i < n; ++i, x += from.row_stride) {
          widen(x, to[i], width);
          std::fill(to[i] + width, to[i] + to.stride, A(0));
        }
        return to;
      }
    for (Index i = 0; i < n; ++i) {
      A* y = to[i];
      const A* x = load_run(advance(from.data, from.dtype, (first + i) * from.row_stride),
                            from.dtype, from.col_stride, width, y);
      if (x != y) std::memcpy(y, x, size_t(width) * sizeof(A));
      std::fill(y + width, y + to.stride, A(0));
    }
    return to;
  }
  void transpose(Grid<A> from, Index width, Grid<A> to) const {
    gemm_kernels<A>().transpose(from.data, from.stride, call_.keys, width, to.stride, to.data);
  }
  static void store(Grid<A> from, Index n, Index width, const Arg& to, Index head, Index first = 0,
                    A scale = 1) {
    if (to.data && scale != A(1))
      per_isa<A, EachRow<false>>(from.data, from.stride, n, width, &scale, Index(0));
    store_rows(from.data, from.stride, n, width, to, head, first);
  }

  /// How many of n keys from `from` on the first query of a block sees; each next sees one more.
  Index first_count(const Block& b, Index from, Index n) const {
    return call_.attrs.causal ? b.first + 1 - from : n;
  }
  /// f(first row, rows, how many of n keys the last of them sees), tile by tile. Products with what
  /// is not seen would add 0.
  template <class F>
  void each_tile(const Block& b, Index from, Index n, F f) const {
    const Index step = gemm_kernels<A>().rows;
    for (Index i = 0; i < b.rows; i += step) {
      const Index rows = std::min(step, b.rows - i);
      f(i, rows, std::clamp(first_count(b, from, n) + i + rows - 1, Index(0), n));
    }
  }
  /// The scores of n keys from `from` on, less what the mask hides. @param any per row, set where
  /// it leaves a key
  void score(const Block& b, Grid<A> q, Grid<A> keys, Index from, Index n, Grid<A> s,
             bool* any = nullptr) const {
    each_tile(b, from, n, [&](Index i, Index rows, Index seen) {
      multiply(rows, seen, call_.width, {q[i], q.stride}, keys.data + from, keys.stride,
               {s[i], s.stride}, false);
    });
    for (Index i = 0; call_.masked() && i < b.rows; ++i) {
      const Index count = std::min(n, call_.seen_before(b.first + i + 1) - from);
      const bool some = count > 0 && call_.hide(b.row + i, from, count, s[i]);
      if (any) any[i] |= some;
    }
  }
  /// c = a b or c += a b; the columns of c are rounded up to whole tiles.
  static void multiply(Index m, Index n, Index k, Grid<A> a, const A* b, Index b_row, Grid<A> c,
                       bool add) {
    gemm_kernels<A>().multiply_unpacked(m, round_up(n, gemm_kernels<A>().cols), k, a.data, a.stride,
                                        1, b, b_row, {c.data, c.stride, add});
  }
  /// c += a^T b, where b has a row for each query of a block, and a a column for each of n keys
  /// from `from` on.
  void add_by_keys(const Block& b, Index from, Index n, Index width, Grid<A> a, Grid<A> rows, A* c,
                   Index c_row) const {
    const Index step = gemm_kernels<A>().rows;
    for (Index j = 0; j < n; j += step) {
      const Index i = std::clamp(j + 1 - first_count(b, from, n), Index(0), b.rows);
      gemm_kernels<A>().multiply_unpacked(
          std::min(step, n - j), round_up(width, gemm_kernels<A>().cols), b.rows - i, a[i] + j, 1,
          a.stride, rows[i], rows.stride, {c + j * c_row, c_row, true});
    }
  }
  void drop(const Block& b, Index from, Index n, Grid<A> x) const {
    for (Index i = 0; call_.attrs.dropout > 0 && i < b.rows; ++i)
      call_.drop(b.row + i, from, n, x[i]);
  }

  void attend(const Block& b, Grid<A> keys, Grid<A> values) const {
    Room<A> room(kRows * (width_ + value_width_ + chunk_ + 3));
    const Grid<A> q = load(call_.q[b.head], b.first, b.rows, call_.width, room.grid(kRows, width_));
    const Grid<A> s = room.grid(kRows, chunk_), out = room.grid(kRows, value_width_);
    A *max = room.numbers(kRows), *sum = room.numbers(kRows), *shrink = room.numbers(kRows);
    std::fill(max, max + kRows, -std::numeric_limits<A>::infinity());
    std::fill(sum, sum + kRows, A(0));
    const Index seen = call_.seen_before(b.first + b.rows);
    bool any[kRows];
    std::fill(any, any + kRows, seen > 0 && !call_.masked());
    for (Index from = 0; from < seen; from += kKeys) {
      const Index n = std::min(kKeys, seen - from);
      score(b, q, keys, from, n, s, any);
      attention_kernels<A>().softmax(b.rows, n, first_count(b, from, n), A(call_.scale), s.data,
                                     s.stride, max, sum, shrink);
      drop(b, from, n, s);
      for (Index i = 0; from > 0 && i < b.rows; ++i)
        for (Index j = 0; j < value_width_; ++j) out[i][j] *= shrink[i];
      each_tile(b, from, n, [&](Index i, Index rows, Index seen) {
        multiply(rows, call_.value_width, seen, {s[i], s.stride}, values[from], values.stride,
                 {out[i], out.stride}, from > 0);
      });
    }
    A* saved = static_cast<A*>(args_.out[1].data) + 2 * b.row;
    for (Index i = 0; i < b.rows; ++i) {
      if (!any[i]) max[i] = 0, sum[i] = 1, std::fill(out[i], out[i] + call_.value_width, A(0));
      saved[2 * i] = max[i], saved[2 * i + 1] = sum[i];
    }
    per_isa<A, EachRow<true>>(out.data, out.stride, b.rows, call_.value_width, sum, Index(1));
    store(out, b.rows, call_.value_width, args_.out[0], b.head, b.first);
  }

  /// dk and dv of a part's keys. Heads are summed one by one, since a chain through all of them
  /// would err more.
  void sum_heads(Index kv, const Side& side, const Part& part) const {
    const Index each = blocks() / call_.group;
    A *dkv = side.dkv[part.from], *sum = side.sum[part.from];
    const Index n = (part.to - part.from) * side.dkv.stride;
    for (Index head = 0; head < call_.group; ++head) {
      std::fill(dkv, dkv + n, A(0));
      for (Index b = head * each; b < (head + 1) * each; ++b)
        differentiate(block(kv, b), side, part);
      for (Index i = 0; call_.group > 1 && i < n; ++i) sum[i] = head > 0 ? sum[i] + dkv[i] : dkv[i];
    }
  }

  void differentiate(const Block& b, const Side& side, const Part& part) const {
    const Index seen = std::min(part.to, call_.seen_before(b.first + b.rows));
    if (seen <= part.from && !part.queries) return;
    const auto& kernels = attention_kernels<A>();
    Room<A> room(kRows * (2 * width_ + value_width_ + 2 * chunk_ + 2));
    const Grid<A> q = load(call_.q[b.head], b.first, b.rows, call_.width, room.grid(kRows, width_));
    const Grid<A> g =
        load(result_[b.head], b.first, b.rows, call_.value_width, room.grid(kRows, value_width_));
    const Grid<A> p = room.grid(kRows, chunk_), d = room.grid(kRows, chunk_),
                  dq = room.grid(kRows, width_);
    A *max = room.numbers(kRows), *sum = room.numbers(kRows);
    const A* saved = static_cast<const A*>(args_.out[1].data) + 2 * b.row;
    for (Index i = 0; i < b.rows; ++i) max[i] = saved[2 * i], sum[i] = saved[2 * i + 1];
    A* mean = side.mean + b.row % rows_of_group();
    // The probabilities of n keys, and the gradients of them.
    auto tile = [&](Index from, Index n) {
      score(b, q, side.keys, from, n, p);
      kernels.probabilities(b.rows, n, first_count(b, from, n), A(call_.scale), p.data, p.stride,
                            max, sum);
      each_tile(b, from, n, [&](Index i, Index rows, Index seen) {
        multiply(rows, seen, call_.value_width, {g[i], g.stride}, side.values.data + from,
                 side.values.stride, {d[i], d.stride}, false);
        const Index cols = gemm_kernels<A>().cols;
        for (Index r = i; r < i + rows; ++r)
          std::fill(d[r] + round_up(seen, cols), d[r] + round_up(n, cols), A(0));
      });
      drop(b, from, n, d);
    };
    auto each_chunk = [&](auto f) {
      for (Index from = part.from; from < seen; from += kKeys)
        f(from, std::min(kKeys, seen - from));
    };
    if (part.queries) {
      std::fill(mean, mean + b.rows, A(0));
      std::fill(dq[0], dq[b.rows], A(0));
      each_chunk([&](Index from, Index n) {
        tile(from, n);
        kernels.weigh(b.rows, n, p.data, d.data, p.stride, mean);
      });
    }
    each_chunk([&](Index from, Index n) {
      if (!part.queries || seen - part.from > kKeys) tile(from, n);
      kernels.center(b.rows, n, p.data, d.data, p.stride, mean);
      if (part.queries && args_.grad_in[0].data)
        each_tile(b, from, n, [&](Index i, Index rows, Index seen) {
          multiply(rows, call_.width, seen, {d[i], d.stride}, side.k[from], side.k.stride,
                   {dq[i], dq.stride}, true);
        });
      if (part.keys && args_.grad_in[1].data)
        add_by_keys(b, from, n, call_.width, d, q, side.dkv[from], side.dkv.stride);
      if (!part.keys || !args_.grad_in[2].data) return;
      drop(b, from, n, p);
      add_by_keys(b, from, n, call_.value_width, p, g, side.dkv[from] + width_, side.dkv.stride);
    });
    if (part.queries)
      store(dq, b.rows, call_.width, args_.grad_in[0], b.head, b.first, A(call_.scale));
  }

  OpArgs& args_;
  AttentionCall call_;
  Matrices result_;
  Index width_, value_width_, keys_, chunk_;  ///< strides
};

}  // namespace

template <class A>
void fused_attention(OpArgs& args) {
  Fused<A>(args, args.out[0]).forward();
}
template <class A>
void fused_attention_backward(OpArgs& args) {
  Fused<A>(args, args.grad_out[0]).backward();
}
template void fused_attention<float>(OpArgs&);
template void fused_attention<double>(OpArgs&);
template void fused_attention_backward<float>(OpArgs&);
template void fused_attention_backward<double>(OpArgs&);

}  // namespace minim::op
