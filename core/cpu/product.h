// core/cpu/product.h -- one matrix product: operands are packed into panels (Goto and van de Geijn,
// 2008), and c is cut into rectangles that threads take one after the other.
#pragma once
#include <algorithm>
#include <array>
#include <type_traits>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/gemm.h"
#include "minim/core/parallel.h"
#include "minim/core/probe.h"

namespace minim::detail {

constexpr int64_t kRowBlock = 96;  // rows of a task: a multiple of every ISA's tile
constexpr int64_t kDepth = 1024;   // of k in one pass; 96 of such rows stay in L2
constexpr int64_t kDeep = kProductBlock * kProductFan;  // of k in one run of blocks
static_assert(kDepth % kProductBlock == 0 && kDeep % kDepth == 0);
constexpr int64_t kColBlock = 1024;    // columns of b packed at a time, at most
constexpr int64_t kStrip = 256;        // columns of a task at a time
constexpr int64_t kPackedB = 1 << 20;  // elements of b packed at a time, about
constexpr int64_t kRun = 128;          // elements loaded at a time
constexpr int64_t kNear = 1280;        // rows of a matrix farther apart miss the TLB at each step
constexpr int64_t kPad = 16;           // between rows, lest all of a tile lie in one set of L1
constexpr int64_t kMaxWidth = 32;      // of a panel, over all ISAs
constexpr double kWorthAThread = 1 << 20;  // operations below which another thread is not asked
constexpr int64_t kPackedAlone = 1 << 17;  // elements of b up to which each thread packs its own
constexpr int64_t kEnoughTasks = 8;
constexpr double kPackingRows = 10;  // packing a row of b takes as long as this many rows of c

constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
constexpr int64_t round_up(int64_t n, int64_t d) { return ceil_div(n, d) * d; }

/// One operand as its lines along k: the rows of a, the columns of b.
struct Lines {
  const void* data;
  DType dtype;
  int64_t stride, k_stride;

  bool dense() const { return stride == 1 || k_stride == 1; }
  const void* at(int64_t line, int64_t k) const {
    return advance(data, dtype, line * stride + k * k_stride);
  }
};

template <class A>
Stored<A> stored(void* c, DType dtype, int64_t stride) {
  return {c, stride, false,
          dtype == DType::f16    ? Stored<A>::f16
          : dtype == DType::bf16 ? Stored<A>::bf16
                                 : Stored<A>::sums};
}

constexpr uint32_t kNoneIsSmall = 1 << 16;

/// Rows of a as a tile reads them: packed, or number k of row i at i * stride + k * k_stride.
template <class Element>
struct Left {
  const Element* rows;
  bool packed;
  int64_t stride, k_stride;
  uint32_t least;  ///< the smallest magnitude, as PairKernels::pack tells it
};

/// How a product works: panels of elements that each hold `kPer` numbers of a line.
template <class A>
struct Wide {
  using Sum = A;
  using Element = A;
  static constexpr int64_t kPer = 1;
  static bool rounds_to(DType d) { return std::is_same_v<A, float> && is_half(d); }
  const GemmKernels<A>& kernels;

  int64_t rows() const { return kernels.rows; }
  int64_t cols() const { return kernels.cols; }

  /// Packs `n` lines from `first` on, `depth` numbers from k0 on, into panels of `width` lines.
  uint32_t pack(const Lines& from, int64_t first, int64_t n, int64_t k0, int64_t depth,
                int64_t width, A* panels) const {
    if (from.dense())
      if (packed(from, from.at(first, k0), n, depth, width, panels)) return kNoneIsSmall;
    A buffer[kMaxWidth * kRun];
    for (int64_t line = 0; line < n; line += width)
      for (int64_t k = 0; k < depth; k += kRun) {
        int64_t count = std::min(width, n - line), length = std::min(kRun, depth - k);
        for (int64_t i = 0; i < count; ++i) {
          A* run = buffer + i * kRun;
          const A* loaded =
              load_run(from.at(first + line + i, k0 + k), from.dtype, from.k_stride, length, run);
          if (loaded != run) std::copy(loaded, loaded + length, run);
        }
        kernels.transpose(buffer, kRun, count, length, width, panels + line * depth + k * width);
      }
    return kNoneIsSmall;
  }

  /// Numbers of A stay where they are; others are packed, or of rows along k converted row by row.
  Left<A> left(const Lines& a, int64_t first, int64_t n, int64_t k0, int64_t depth, A* room) const {
    if (a.dtype == dtype_for<A>() && a.dense() && a.k_stride <= kNear)
      return {static_cast<const A*>(a.at(first, k0)), false, a.stride, a.k_stride, kNoneIsSmall};
    if (a.k_stride != 1)
      return {room, true, 0, 0, pack(a, first, n, k0, depth, kernels.rows, room)};
    const int64_t stride = depth + kPad;
    for (int64_t i = 0; i < n; ++i)
      load_run(a.at(first + i, k0), a.dtype, 1, depth, room + i * stride);
    return {room, false, stride, 1, kNoneIsSmall};
  }
  void multiply(int64_t m, int64_t n, int64_t k, const Left<A>& a, const A* b, const Stored<A>& to,
                bool /*small*/) const {
    a.packed ? kernels.multiply(m, n, k, a.rows, b, to)
             : kernels.multiply_rows(m, n, k, a.rows, a.stride, a.k_stride, b, to);
  }

 private:
  /// False where there is no kernel for the dtype.
  bool packed(const Lines& from, const void* data, int64_t n, int64_t depth, int64_t width,
              A* panels) const {
    auto by =
        [&]<class T>(void (*kernel)(const T*, int64_t, int64_t, int64_t, int64_t, int64_t, A*)) {
          kernel(static_cast<const T*>(data), from.stride, from.k_stride, n, depth, width, panels);
          return true;
        };
    if (from.dtype == dtype_for<A>()) return by(kernels.pack);
    if constexpr (std::is_same_v<A, float>)
      if (is_half(from.dtype))
        return by(from.dtype == DType::f16 ? isa().pack_f16 : isa().pack_bf16);
    return false;
  }
};

/// Products of bf16 by bf16, two numbers at once.
struct Paired {
  using Sum = float;
  using Element = uint32_t;
  static constexpr int64_t kPer = 2;
  static bool rounds_to(DType d) { return d == DType::bf16; }

  int64_t rows() const { return isa().f32.rows; }
  int64_t cols() const { return isa().f32.cols; }
  uint32_t pack(const Lines& from, int64_t first, int64_t n, int64_t k0, int64_t depth,
                int64_t width, uint32_t* panels) const {
    return isa().pairs->pack(static_cast<const uint16_t*>(from.at(first, k0)), from.stride,
                             from.k_stride, n, depth, width, panels);
  }
  Left<uint32_t> left(const Lines& a, int64_t first, int64_t n, int64_t k0, int64_t depth,
                      uint32_t* room) const {
    return {room, true, 0, 0, pack(a, first, n, k0, depth, rows(), room)};
  }
  void multiply(int64_t m, int64_t n, int64_t k, const Left<uint32_t>& a, const uint32_t* b,
                const Stored<float>& to, bool small) const {
    const PairKernels& kernels = *isa().pairs;
    (small ? kernels.multiply_widened : kernels.multiply)(m, n, k, a.rows, b, to);
  }
};

/// Whether a sum of products of bf16 numbers, the smallest of either side as given, may meet a
/// subnormal: all are multiples of 2^(their exponents - 14), so that no sum is smaller.
inline bool may_be_subnormal(uint32_t least_a, uint32_t least_b) {
  constexpr uint32_t kDigits = 7, kBias = 127;
  const uint32_t a = least_a >> kDigits, b = least_b >> kDigits;
  return a == 0 || b == 0 || a + b < kBias + 1 + 2 * kDigits;
}

/// c is cut into blocks of columns, and these into tasks. Of a large b the threads pack a share
/// each, for few rows that of their tasks; of a small one each packs by itself what it uses.
template <class Way>
class Product {
  using A = typename Way::Sum;
  using Element = typename Way::Element;

 public:
  Product(const GemmArgs& g, Way way)
      : g_(g),
        way_(way),
        a_{g.a.data, g.a.dtype, g.a.row_stride, g.a.col_stride},
        b_{g.b.data, g.b.dtype, g.b.col_stride, g.b.row_stride} {
    const int64_t k = std::max<int64_t>(g.k, 1);
    depth_ = std::min(round_up(k, Way::kPer), kDepth);
    block_cols_ = std::clamp(kPackedB / k, kColBlock / 4, kColBlock);
    block_cols_ = std::min(round_up(block_cols_, way.cols()), round_up(g.n, way.cols()));
    apart_ = g.accumulate || g.alpha != 1 || k > kDeep ||
             (g.c_dtype != dtype_for<A>() &&
              (!Way::rounds_to(g.c_dtype) || depth_ < g.k || Probe::current()));
  }

  void run() {
    Scratch<A> bias(g_.bias ? size_t(g_.n) : 0);
    if (g_.bias) bias_ = load_run(g_.bias, g_.bias_dtype, 1, g_.n, bias.data());
    for (int64_t j = 0; j < g_.n; j += block_cols_)
      run_block({0, g_.m, j, std::min(block_cols_, g_.n - j)});
  }

 private:
  struct Rectangle {
    int64_t i, rows, j, cols;
  };

  /// Room for sums beside c: those of a strip, or of all where more slabs of k are to come.
  int64_t level_size() const {
    return kRowBlock * (depth_ < g_.k ? round_up(block_cols_, kStrip) : kStrip);
  }
  int64_t levels() const {
    int64_t n = 1;
    for (int64_t runs = ceil_div(g_.k, kDeep); runs > 1; runs = ceil_div(runs, kProductFan)) ++n;
    return n;
  }

  /// Of a panel, per line.
  static int64_t elements(int64_t depth) { return ceil_div(depth, Way::kPer); }

  /// Tasks are up to kRowBlock rows by some columns. Threads take runs of them, which share the
  /// rows: long ones first and single ones last (Polychronopoulos and Kuck, 1987). Who takes which
  /// depends on the number of threads, no bit does: each element of c is summed along k by itself.
  void run_block(const Rectangle& block) const {
    int64_t width = kStrip, height = kRowBlock;  // of a task
    auto few = [&] { return ceil_div(g_.m, height) * ceil_div(block.cols, width) < kEnoughTasks; };
    if (few()) width /= 2;
    while (few() && height > kRowBlock / 4) height /= 2;
    width = round_up(ceil_div(block.cols, ceil_div(block.cols, width)), way_.cols());
    const int64_t down = ceil_div(g_.m, height), tiles = ceil_div(g_.m, way_.rows());
    auto row = [&](int64_t t) { return std::min(g_.m, t * tiles / down * way_.rows()); };
    const int64_t across = ceil_div(block.cols, width), tasks = down * across;
    const double work = 2.0 * (double(g_.m) + kPackingRows) * double(block.cols) * double(g_.k);
    const int64_t workers =
        int64_t(std::clamp(work / kWorthAThread, 1.0, double(std::min<int64_t>(threads(), tasks))));
    const bool shared = g_.k * block.cols > kPackedAlone, together = shared && down > 1;
    const bool by_columns = together && g_.m < block.cols;  // a thread uses what it has packed
    Columns common(shared ? size_t(elements(g_.k) * block_cols_) : 0, block, width);
    if (together)
      parallel_for(across, 1, [&](int64_t first, int64_t end) {
        for (int64_t u = first; u < end; ++u) pack_b(common, u);
      });
    Shares shares;
    shares.deal(tasks, workers);
    parallel_for(workers, 1, [&](int64_t me, int64_t) {
      int64_t first, count;
      if (!shares.take(me, workers > 1, first, count)) return;
      Columns alone(shared ? 0 : size_t(elements(g_.k) * block_cols_), block, width);
      const Scratch<Element> rows(size_t(kRowBlock * (elements(depth_) + kPad)));
      const Scratch<A> sums(apart_ ? size_t(levels() * level_size()) : 0);
      do
        for (int64_t t = first, run; t < first + count; t += run) {
          const int64_t r = by_columns ? t % down : t / across;
          const int64_t u = by_columns ? t / down : t % across;
          run = by_columns ? 1 : std::min(first + count - t, across - u);
          const int64_t i = row(r), j = u * width, cols = std::min(run * width, block.cols - j);
          task({i, row(r + 1) - i, block.j + j, cols}, shared ? common : alone, rows.data(),
               sums.data());
        }
      while (shares.take(me, workers > 1, first, count));
    });
  }

  /// The columns of b that belong to a block, packed as they are needed, by width of a task.
  struct Columns {
    Columns(size_t n, const Rectangle& of, int64_t each) : panels(n), block(of), width(each) {}
    Scratch<Element> panels;
    Rectangle block;
    int64_t width;
    std::array<uint32_t, 2 * kColBlock / kStrip> least{};  ///< magnitude; 0: not packed yet
  };

  /// One slab of `depth_` after the other, each with block_cols_ columns.
  void pack_b(Columns& b, int64_t u) const {
    const int64_t j = u * b.width, cols = std::min(b.width, b.block.cols - j);
    uint32_t least = kNoneIsSmall;
    for (int64_t k = 0; k < g_.k; k += depth_) {
      const int64_t depth = std::min(depth_, g_.k - k);
      Element* to = b.panels.data() + elements(k) * block_cols_ + j * elements(depth);
      least = std::min(least, way_.pack(b_, b.block.j + j, cols, k, depth, way_.cols(), to));
    }
    b.least[size_t(u)] = least;
  }

  /// In strips of columns, so that sums which are stored elsewhere are still in cache then.
  void task(const Rectangle& r, Columns& b, Element* rows, A* sums) const {
    const int64_t from = r.j - b.block.j;
    uint32_t least_b = kNoneIsSmall;
    for (int64_t u = from / b.width; u * b.width < from + r.cols; ++u) {
      if (b.least[size_t(u)] == 0) pack_b(b, u);
      least_b = std::min(least_b, b.least[size_t(u)]);
    }
    for (int64_t k = 0; k == 0 || k < g_.k; k += depth_) {
      const int64_t depth = std::min(depth_, g_.k - k), deep = elements(depth);
      const Left<Element> a = way_.left(a_, r.i, r.rows, k, depth, rows);
      const bool small = may_be_subnormal(a.least, least_b);
      for (int64_t s = 0; s < r.cols; s += kStrip) {
        const Rectangle strip{r.i, r.rows, r.j + s, std::min(kStrip, r.cols - s)};
        const bool last = k + depth >= g_.k;
        Stored<A> to = place(strip);
        if (apart_)
          to = {sums + (depth_ < g_.k ? s * kRowBlock : 0), kStrip, false};
        else if (last && g_.bias)
          to.bias = bias_ + strip.j;
        to.add = k % kDeep > 0;
        way_.multiply(strip.rows, strip.cols, deep, a,
                      b.panels.data() + elements(k) * block_cols_ + (from + s) * deep, to, small);
        if (g_.k > kDeep && (last || (k + depth) % kDeep == 0))
          to.c = fold(strip, k / kDeep, last, static_cast<A*>(to.c));
        if (apart_ && last) finish(strip, static_cast<A*>(to.c));
      }
    }
  }

  /// Adds the sums of a run of blocks, which are at `sums`, to those of the next level, and so on
  /// where they complete them.
  /// @returns where those of the highest level are that was reached
  A* fold(const Rectangle& r, int64_t run, bool last, A* sums) const {
    for (int64_t runs = ceil_div(g_.k, kDeep); runs > 1; runs = ceil_div(runs, kProductFan)) {
      const bool first = run % kProductFan == 0;
      A* next = sums + level_size();
      for (int64_t i = 0; i < r.rows * kStrip; ++i) next[i] = first ? sums[i] : next[i] + sums[i];
      sums = next;
      if (!last && run % kProductFan != kProductFan - 1) break;
      run /= kProductFan;
    }
    return sums;
  }

  /// c from the rectangle's first element on.
  Stored<A> place(const Rectangle& r) const {
    return stored<A>(advance(g_.c, g_.c_dtype, r.i * g_.c_row_stride + r.j), g_.c_dtype,
                     g_.c_row_stride);
  }

  void finish(const Rectangle& r, A* sums) const {
    const A alpha = A(g_.alpha);
    A c_buffer[kStrip];
    for (int64_t i = 0; i < r.rows; ++i) {
      A* x = sums + i * kStrip;
      void* c = advance(g_.c, g_.c_dtype, (r.i + i) * g_.c_row_stride + r.j);
      if (alpha != A(1))
        for (int64_t j = 0; j < r.cols; ++j) x[j] *= alpha;
      if (g_.bias)
        for (int64_t j = 0; j < r.cols; ++j) x[j] += bias_[r.j + j];
      if (g_.accumulate) {
        const A* old = load_run(c, g_.c_dtype, 1, r.cols, c_buffer);
        for (int64_t j = 0; j < r.cols; ++j) x[j] += old[j];
      }
      store_run(c, g_.c_dtype, 1, r.cols, x);
    }
  }

  const GemmArgs& g_;
  Way way_;
  Lines a_, b_;
  const A* bias_ = nullptr;
  int64_t depth_, block_cols_;
  bool apart_;  ///< sums are kept beside c and stored from there
};

}  // namespace minim::detail
