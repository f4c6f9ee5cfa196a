// Attention in tiles (Dao, "FlashAttention-2", 2023): a block of queries meets the keys chunk by
// chunk with an online softmax, so that of the (Tq, Tk) scores a thread never holds more than
// kRows x kKeys. Backward makes the tiles again from q, k and two numbers a row: the largest score,
// and the sum of e^(score - largest). Folded into their logarithm, as in the paper, they would
// lose what follows the point where scores are large.
//
// Long sums are made in parts of a fixed length, as in core/gemm.h, so that neither the threads nor
// the way in which the work is cut change a bit. Over keys: a chunk's as a product's, on to those
// of the chunks before, and each kKeyRun keys by themselves. Over queries: kRows of them as one
// chain, on to those of the rows before, and each kQueryRun queries by themselves. Runs, and then
// heads, are added in order.
#include "minim/core/probe.h"
#include "minim/ops/attention.h"
#include "minim/ops/attention_room.h"

namespace minim::op {
namespace {

constexpr Index kRows = 96, kKeys = 1024;  // kRows: whole tiles of every ISA
constexpr Index kCut = 128;                // keys of a task where heads are few
constexpr Index kManyHeads = 16;           // from here on a head is a task
constexpr Index kFewRows = kRows / 2;      // a block where blocks are tasks
constexpr Index kRunBlocks = 32, kQueryRun = kRunBlocks * kRows;
constexpr Index kKeyRun = kProductFan * kKeys;

template <class A>
class Fused {
 public:
  /// @param result out[0], or its gradient
  Fused(OpArgs& args, const Arg& result)
      : args_(args), call_(args), result_(result, leading(result.shape, 2)) {
    const Index to = std::max<Index>(16, gemm_kernels<A>().cols);
    width_ = round_up(call_.width, to), value_width_ = round_up(call_.value_width, to);
    keys_ = round_up(call_.keys, to);
  }

  void forward(HeadFormula* formula) const {
    auto finite = [&](Index kv) {
      return all_finite<A>(call_.k, kv, 1, call_.keys, call_.width) &&
             all_finite<A>(call_.v, kv, 1, call_.keys, call_.value_width) &&
             all_finite<A>(call_.q, kv * call_.group, call_.group, call_.queries, call_.width);
    };
    // A sum of 0 is the sign for backward: otherwise it is at least 1, but for scores that are all
    // -inf, where either way gives NaN.
    auto untiled = [&](Index kv) {
      formula(args_, call_, kv);
      std::fill_n(saved(kv), 2 * rows_of_group(), A(0));
    };
    each_kv_head(finite, untiled, [&](Index kv) {
      Room<A> room(call_.width * keys_ + call_.keys * (width_ + value_width_));
      A* keys = room.numbers(call_.width * keys_);
      pack(call_.k[kv], call_.width, room.grid(call_.keys, width_), keys);
      const Grid<A> values =
          load(call_.v[kv], 0, call_.keys, call_.value_width, room.grid(call_.keys, value_width_));
      parallel_for(blocks(step()), 1, [&](Index begin, Index end) {
        for (Index b = begin; b < end; ++b) attend(block(kv, b, step()), keys, values);
      });
    });
  }

  void backward(HeadFormula* formula) const {
    auto finite = [&](Index kv) {
      return (rows_of_group() == 0 || saved(kv)[1] != 0) &&
             all_finite<A>(result_, kv * call_.group, call_.group, call_.queries,
                           call_.value_width);
    };
    auto untiled = [&](Index kv) { formula(args_, call_, kv); };
    each_kv_head(finite, untiled, [&](Index kv) {
      const Index width = width_ + value_width_, many = many_runs();
      Room<A> room((call_.width + call_.value_width) * keys_ + (2 + many) * call_.keys * width +
                   round_up(rows_of_group(), 16));
      Side side{room.numbers(call_.width * keys_),   room.numbers(call_.value_width * keys_),
                room.grid(call_.keys, width_),       room.grid(call_.keys, width),
                room.grid(many * call_.keys, width), room.numbers(rows_of_group())};
      const Grid<A> unused = {side.dkv.data, value_width_};  // yet
      pack(call_.v[kv], call_.value_width, unused, side.values);
      pack(call_.k[kv], call_.width, side.k, side.keys);
      side.k = load(call_.k[kv], 0, call_.keys, call_.width, side.k);
      if (many_heads()) {
        sum_heads(kv, side, {0, call_.keys, true, true});
      } else {
        parallel_for(blocks(step()), 1, [&](Index begin, Index end) {
          for (Index b = begin; b < end; ++b)
            differentiate(block(kv, b, step()), side, {0, call_.keys, true, false});
        });
        parallel_for(call_.keys, kCut, [&](Index begin, Index end) {
          sum_heads(kv, side, {begin, end, false, true});
        });
      }
      const Grid<A> sum = many ? side.sum : side.dkv;
      const A scale = A(call_.scale), one = 1;
      store(sum, call_.keys, call_.width, args_.grad_in[1], kv, 0, &scale);
      store({sum.data + width_, width}, call_.keys, call_.value_width, args_.grad_in[2], kv, 0,
            &one);
    });
  }

 private:
  /// Up to kRows queries of one head; `row` is the first one's number over all heads.
  struct Block {
    Index head, first, rows, row;
  };
  /// What the blocks of all heads that share k and v read and add to: k and v packed, k, the
  /// gradients of k and v side by side, of one run of queries and of all, and the mean gradient of
  /// each row's probabilities.
  struct Side {
    A *keys, *values;
    Grid<A> k, dkv, sum;
    A* mean;
  };
  /// Which keys, and whether the mean and dq are to be found or dk and dv; both for all keys only.
  struct Part {
    Index from, to;
    bool queries, keys;
  };

  /// Whether more than one run of queries has a part in the gradients of k and v.
  bool many_runs() const { return call_.group > 1 || call_.queries > kQueryRun; }
  /// From row to row of a tile. Not a power of two, whose rows would share the sets of a cache.
  static Index tile_stride(Index keys) {
    return round_up(std::min(keys, kKeys), std::max<Index>(16, gemm_kernels<A>().cols)) + 16;
  }
  bool many_heads() const { return call_.heads / call_.group >= kManyHeads; }
  Index rows_of_group() const { return call_.group * call_.queries; }
  Index step() const { return many_heads() ? kRows : kFewRows; }
  Index blocks(Index step) const { return call_.group * (round_up(call_.queries, step) / step); }
  Block block(Index kv, Index b, Index step) const {
    const Index each = blocks(step) / call_.group, head = kv * call_.group + b / each;
    const Index first = b % each * step;
    return {head, first, std::min(step, call_.queries - first), head * call_.queries + first};
  }
  /// What forward saves of the rows of the heads that share one of k and v.
  A* saved(Index kv) const { return static_cast<A*>(args_.out[1].data) + 2 * kv * rows_of_group(); }
  /// f for heads that read only what is finite, `untiled` for the others.
  template <class Finite, class Untiled, class F>
  void each_kv_head(Finite finite, Untiled untiled, F f) const {
    const Index n = call_.heads / call_.group;
    parallel_for(n, many_heads() ? 1 : std::max<Index>(1, n), [&](Index begin, Index end) {
      for (Index kv = begin; kv < end; ++kv) finite(kv) ? f(kv) : untiled(kv);
    });
  }

  /// Rows [first, first + n), followed by zeros, in `to` unless they can be read where they are.
  static Grid<A> load(const MatrixRef& from, Index first, Index n, Index width, Grid<A> to) {
    const void* data = advance(from.data, from.dtype, first * from.row_stride);
    if (const auto as = rows_of<A>(from)) {
      if (as == Stored<A>::sums && width == to.stride)
        return {static_cast<A*>(const_cast<void*>(data)), from.row_stride};
      attention_kernels<A>().load(n, width, data, from.row_stride, *as, to.data, to.stride);
      return to;
    }
    for (Index i = 0; i < n; ++i) {
      load_run(advance(data, from.dtype, i * from.row_stride), from.dtype, from.col_stride, width,
               to[i]);
      std::fill(to[i] + width, to[i] + to.stride, A(0));
    }
    return to;
  }
  /// All rows, as panels. @param rows room for them
  void pack(const MatrixRef& from, Index width, Grid<A> rows, A* to) const {
    const auto& gemm = gemm_kernels<A>();
    if constexpr (std::is_same_v<A, float>)
      if (is_half(from.dtype) && from.col_stride == 1)
        return (from.dtype == DType::f16 ? isa().pack_f16 : isa().pack_bf16)(
            static_cast<const uint16_t*>(from.data), from.row_stride, 1, call_.keys, width,
            gemm.cols, to);
    rows = load(from, 0, call_.keys, width, rows);
    gemm.pack(rows.data, rows.stride, 1, call_.keys, width, gemm.cols, to);
  }
  /// Rows times *by, or each divided by its own.
  template <bool divide = false>
  static void store(Grid<A> from, Index n, Index width, const Arg& to, Index head, Index first,
                    const A* by) {
    if (!to.data) return;
    const auto& kernels = attention_kernels<A>();
    const auto scale = divide ? kernels.store_quotient : kernels.store_product;
    const MatrixRef there = Matrices(to, leading(to.shape, 2))[head];
    if (const auto as = rows_of<A>(there); as && !Probe::current()) {
      void* c = advance(const_cast<void*>(there.data), to.dtype, first * there.row_stride);
      return scale(n, width, from.data, from.stride, by, divide, {c, there.row_stride, false, *as});
    }
    scale(n, width, from.data, from.stride, by, divide, {from.data, from.stride, false});
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
  /// The scores of n keys from `from` on; times scale, what the mask hides is -infinity.
  /// @param any per row, set where it leaves a key
  void score(const Block& b, Grid<A> q, const A* keys, Index from, Index n, Grid<A> s,
             bool* any = nullptr) const {
    const A hidden = A(std::copysign(std::numeric_limits<A>::infinity(), -call_.scale));
    meet(b, q, call_.width, keys, from, n, s);
    for (Index i = 0; call_.masked() && i < b.rows; ++i) {
      const Index count = std::min(n, call_.seen_before(b.first + i + 1) - from);
      if (count > 0 && call_.hide(b.row + i, from, count, hidden, s[i]) && any) any[i] = true;
    }
  }
  /// s = rows times n packed keys or values from `from` on.
  void meet(const Block& b, Grid<A> rows, Index width, const A* packed, Index from, Index n,
            Grid<A> s) const {
    const auto& gemm = gemm_kernels<A>();
    each_tile(b, from, n, [&](Index i, Index m, Index seen) {
      gemm.multiply_rows(m, round_up(seen, gemm.cols), width, rows[i], rows.stride, 1,
                         packed + from * width, {s[i], s.stride, false});
    });
  }
  /// total = x, or total += x.
  static void add_run(bool first, Index n, const A* x, A* total) {
    for (Index i = 0; i < n; ++i) total[i] = first ? x[i] : total[i] + x[i];
  }
  /// c = s x, or c += s x from the second chunk of a run on, where x has a row for each key.
  void gather(const Block& b, Index from, Index n, Index width, Grid<A> s, Grid<A> x,
              Grid<A> c) const {
    const auto& gemm = gemm_kernels<A>();
    each_tile(b, from, n, [&](Index i, Index rows, Index seen) {
      gemm.multiply_unpacked(rows, round_up(width, gemm.cols), seen, s[i], s.stride, 1, x[from],
                             x.stride, {c[i], c.stride, from % kKeyRun > 0});
    });
  }
  /// c += a^T b, where b has a row for each query of a block, and a a column for each of n keys
  /// from `from` on. Keys that no query of the run before the block sees have nothing in c yet.
  void add_by_keys(const Block& b, Index from, Index n, Index width, Grid<A> a, Grid<A> rows, A* c,
                   Index c_row) const {
    const auto& gemm = gemm_kernels<A>();
    const Index before = b.first % kQueryRun == 0 ? 0 : call_.seen_before(b.first);
    const Index old = std::clamp(before - from, Index(0), n);
    for (Index j = 0, keys; j < n; j += keys) {
      keys = std::min(gemm.rows, (j < old ? old : n) - j);
      const Index i = std::clamp(j + 1 - first_count(b, from, n), Index(0), b.rows);
      gemm.multiply_unpacked(keys, round_up(width, gemm.cols), b.rows - i, a[i] + j, 1, a.stride,
                             rows[i], rows.stride, {c + j * c_row, c_row, j < old});
    }
  }
  void drop(const Block& b, Index from, Index n, Grid<A> x) const {
    const Index first = first_count(b, from, n) + gemm_kernels<A>().rows - 1;
    for (Index i = 0; call_.attrs.dropout > 0 && i < b.rows; ++i)
      call_.drop(b.row + i, from, std::clamp(first + i, Index(0), n), x[i]);
  }

  void attend(const Block& b, const A* keys, Grid<A> values) const {
    const Index most = round_up(b.rows, 16), seen = call_.seen_before(b.first + b.rows);
    const bool runs = seen > kKeyRun;
    const Index stride = tile_stride(call_.keys);
    Room<A> room(most * (width_ + value_width_ + stride + 3 + runs * (value_width_ + 1)));
    const Grid<A> q = load(call_.q[b.head], b.first, b.rows, call_.width, room.grid(most, width_));
    const Grid<A> s = room.grid(most, stride), out = room.grid(most, value_width_);
    A *max = room.numbers(most), *sum = room.numbers(most), *shrink = room.numbers(most);
    const Grid<A> all = runs ? room.grid(most, value_width_) : out;
    A* all_sums = runs ? room.numbers(most) : sum;
    auto shrink_rows = [&](Grid<A> x) {
      for (Index i = 0; i < b.rows; ++i)
        for (Index j = 0; j < value_width_; ++j) x[i][j] *= shrink[i];
    };
    std::fill(max, max + most, -std::numeric_limits<A>::infinity());
    std::fill(sum, sum + most, A(0));
    bool any[kRows];
    std::fill(any, any + kRows, seen > 0 && !call_.masked());
    for (Index from = 0; from < seen; from += kKeys) {
      const Index n = std::min(kKeys, seen - from);
      score(b, q, keys, from, n, s, any);
      attention_kernels<A>().softmax(b.rows, n, first_count(b, from, n), A(call_.scale), s.data,
                                     s.stride, max, sum, shrink);
      drop(b, from, n, s);
      if (from % kKeyRun > 0) shrink_rows(out);
      gather(b, from, n, call_.value_width, s, values, out);
      if (!runs) continue;
      const bool first = from < kKeyRun;
      if (!first) shrink_rows(all);
      for (Index i = 0; !first && i < b.rows; ++i) all_sums[i] *= shrink[i];
      if ((from + n) % kKeyRun > 0 && from + n < seen) continue;
      add_run(first, b.rows * value_width_, out.data, all.data);
      add_run(first, b.rows, sum, all_sums);
      std::fill(sum, sum + most, A(0));
    }
    A* saved = static_cast<A*>(args_.out[1].data) + 2 * b.row;
    for (Index i = 0; i < b.rows; ++i) {
      if (!any[i]) max[i] = 0, all_sums[i] = 1, std::fill(all[i], all[i] + call_.value_width, A(0));
      saved[2 * i] = max[i], saved[2 * i + 1] = all_sums[i];
    }
    store<true>(all, b.rows, call_.value_width, args_.out[0], b.head, b.first, all_sums);
  }

  /// dk and dv of a part's keys.
  void sum_heads(Index kv, const Side& side, const Part& part) const {
    const Index each = blocks(kRows) / call_.group;
    A *dkv = side.dkv[part.from], *sum = side.sum[part.from];
    const Index n = (part.to - part.from) * side.dkv.stride;
    if (each == 0) std::fill_n(many_runs() ? sum : dkv, n, A(0));
    for (Index head = 0; head < call_.group; ++head)
      for (Index i = 0; i < each; ++i) {
        const Block b = block(kv, head * each + i, kRows);
        differentiate(b, side, part);
        if (i + 1 < each && (i + 1) % kRunBlocks > 0) continue;
        const Index seen = std::clamp(call_.seen_before(b.first + b.rows), part.from, part.to);
        std::fill(side.dkv[seen], side.dkv[part.to], A(0));
        if (many_runs()) add_run(head == 0 && i < kRunBlocks, n, dkv, sum);
      }
  }

  void differentiate(const Block& b, const Side& side, const Part& part) const {
    const Index seen = std::min(part.to, call_.seen_before(b.first + b.rows));
    if (seen <= part.from && !part.queries) return;
    const auto& kernels = attention_kernels<A>();
    const Index most = round_up(b.rows, 16);
    const bool runs = part.queries && seen > kKeyRun;
    const Index stride = tile_stride(part.to - part.from);
    Room<A> room(most * ((2 + runs) * width_ + value_width_ + 2 * stride + 2));
    const Grid<A> q = load(call_.q[b.head], b.first, b.rows, call_.width, room.grid(most, width_));
    const Grid<A> g =
        load(result_[b.head], b.first, b.rows, call_.value_width, room.grid(most, value_width_));
    const Grid<A> p = room.grid(most, stride), d = room.grid(most, stride),
                  dq = room.grid(most, width_), all = runs ? room.grid(most, width_) : dq;
    A *max = room.numbers(most), *sum = room.numbers(most);
    const A* saved = static_cast<const A*>(args_.out[1].data) + 2 * b.row;
    for (Index i = 0; i < b.rows; ++i) max[i] = saved[2 * i], sum[i] = saved[2 * i + 1];
    A* mean = side.mean + b.row % rows_of_group();
    // The probabilities of n keys, and the gradients of them.
    auto tile = [&](Index from, Index n) {
      score(b, q, side.keys, from, n, p);
      kernels.probabilities(b.rows, n, first_count(b, from, n), A(call_.scale), p.data, p.stride,
                            max, sum);
      meet(b, g, call_.value_width, side.values, from, n, d);
      drop(b, from, n, d);
    };
    auto each_chunk = [&](auto f) {
      for (Index from = part.from; from < seen; from += kKeys)
        f(from, std::min(kKeys, seen - from));
    };
    if (part.queries) {
      std::fill(mean, mean + b.rows, A(0));
      if (seen == 0) std::fill(dq[0], dq[b.rows], A(0));
      each_chunk([&](Index from, Index n) {
        tile(from, n);
        kernels.weigh(b.rows, n, first_count(b, from, n), p.data, d.data, p.stride, mean);
      });
    }
    each_chunk([&](Index from, Index n) {
      if (!part.queries || seen - part.from > kKeys) tile(from, n);
      kernels.center(b.rows, n, first_count(b, from, n), p.data, d.data, p.stride, mean);
      if (part.queries && args_.grad_in[0].data) {
        gather(b, from, n, call_.width, d, side.k, dq);
        if (runs && ((from + n) % kKeyRun == 0 || from + n == seen))
          add_run(from < kKeyRun, b.rows * width_, dq.data, all.data);
      }
      if (part.keys && args_.grad_in[1].data)
        add_by_keys(b, from, n, call_.width, d, q, side.dkv[from], side.dkv.stride);
      if (!part.keys || !args_.grad_in[2].data) return;
      drop(b, from, n, p);
      add_by_keys(b, from, n, call_.value_width, p, g, side.dkv[from] + width_, side.dkv.stride);
    });
    const A scale = A(call_.scale);
    if (part.queries) store(all, b.rows, call_.width, args_.grad_in[0], b.head, b.first, &scale);
  }

  OpArgs& args_;
  AttentionCall call_;
  Matrices result_;
  Index width_, value_width_, keys_;  ///< sizes that are rounded up
};

}  // namespace

template <class A>
void fused_attention(OpArgs& args, HeadFormula* formula) {
  Fused<A>(args, args.out[0]).forward(formula);
}
template <class A>
void fused_attention_backward(OpArgs& args, HeadFormula* formula) {
  Fused<A>(args, args.grad_out[0]).backward(formula);
}
template void fused_attention<float>(OpArgs&, HeadFormula*);
template void fused_attention<double>(OpArgs&, HeadFormula*);
template void fused_attention_backward<float>(OpArgs&, HeadFormula*);
template void fused_attention_backward<double>(OpArgs&, HeadFormula*);

}  // namespace minim::op
