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

constexpr Index kRows = 32, kKeys = 1024;
constexpr Index kCut = 128;       // keys of a task where heads are few
constexpr Index kManyHeads = 16;  // from here on a head is a task

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

/// A matrix in scratch memory.
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
      const Grid<A> keys = room.grid(call_.width, keys_),
                    values = room.grid(call_.keys, value_width_);
      transpose(load(call_.k[kv], 0, call_.keys, call_.width, room.grid(call_.keys, width_)),
                call_.width, keys);
      load(call_.v[kv], 0, call_.keys, call_.value_width, values);
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
      transpose(load(call_.k[kv], 0, call_.keys, call_.width, side.k), call_.width, side.keys);
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
      store(sum, call_.keys, call_.width, args_.grad_in[1], kv * call_.keys, A(call_.scale));
      store({sum.data + width_, width}, call_.keys, call_.value_width, args_.grad_in[2],
            kv * call_.keys);
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

  /// Rows [first, first + n), followed by zeros.
  static Grid<A> load(const MatrixRef& from, Index first, Index n, Index width, Grid<A> to) {
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
  void store(Grid<A> from, Index n, Index width, const Arg& to, Index row, A scale = 1) const {
    for (Index i = 0; to.data && i < n; ++i) {
      for (Index j = 0; j < width && scale != A(1); ++j) from[i][j] *= scale;
      store_run(advance(to.data, to.dtype, (row + i) * width), to.dtype, 1, width, from[i]);
    }
  }

  /// How many of n keys from `from` on the first query of a block sees; each next sees one more.
  Index first_count(const Block& b, Index from, Index n) const {
    return call_.attrs.causal ? b.first + 1 - from : n;
  }
  /// The scores of n keys from `from` on, less what the mask hides. @param any per row, set where
  /// it leaves a key
  void score(const Block& b, Grid<A> q, Grid<A> keys, Index from, Index n, Grid<A> s,
             bool* any = nullptr) const {
    multiply(b.rows, n, call_.width, q, keys.data + from, keys.stride, s, false);
    for (Index i = 0; call_.masked() && i < b.rows; ++i) {
      const Index count = std::min(n, call_.seen_before(b.first + i + 1) - from);
      const bool some = count > 0 && call_.hide(b.row + i, from, count, s[i]);
      if (any) any[i] |= some;
    }
  }
  /// c = a b or c += a b; the columns of c are rounded up to whole tiles.
  static void multiply(Index m, Index n, Index k, Grid<A> a, const A* b, Index b_row, Grid<A> c,
                       bool add) {
    attention_kernels<A>().multiply(m, round_up(n, gemm_kernels<A>().cols), k, a.data, a.stride, 1,
                                    b, b_row, c.data, c.stride, add);
  }
  /// c += a^T b
  static void multiply_transposed(Index m, Index n, Index k, Grid<A> a, Grid<A> b, A* c,
                                  Index c_row) {
    attention_kernels<A>().multiply(m, round_up(n, gemm_kernels<A>().cols), k, a.data, 1, a.stride,
                                    b.data, b.stride, c, c_row, true);
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
      multiply(b.rows, call_.value_width, n, s, values[from], values.stride, out, from > 0);
    }
    A* saved = static_cast<A*>(args_.out[1].data) + 2 * b.row;
    for (Index i = 0; i < b.rows; ++i) {
      saved[2 * i] = any[i] ? max[i] : A(0), saved[2 * i + 1] = any[i] ? sum[i] : A(1);
      for (Index j = 0; j < call_.value_width; ++j) out[i][j] = any[i] ? out[i][j] / sum[i] : A(0);
    }
    store(out, b.rows, call_.value_width, args_.out[0], b.row);
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
      multiply(b.rows, n, call_.value_width, g, side.values.data + from, side.values.stride, d,
               false);
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
        multiply(b.rows, call_.width, n, d, side.k[from], side.k.stride, dq, true);
      if (part.keys && args_.grad_in[1].data)
        multiply_transposed(n, call_.width, b.rows, d, q, side.dkv[from], side.dkv.stride);
      if (!part.keys || !args_.grad_in[2].data) return;
      drop(b, from, n, p);
      multiply_transposed(n, call_.value_width, b.rows, p, g, side.dkv[from] + width_,
                          side.dkv.stride);
    });
    if (part.queries) store(dq, b.rows, call_.width, args_.grad_in[0], b.row, A(call_.scale));
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
