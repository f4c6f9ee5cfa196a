#include "minim/core/gemm.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

constexpr int64_t kRowBlock = 96;      // rows of a task: a multiple of every ISA's tile
constexpr int64_t kDepth = 1024;       // of k in one pass; 96 of such rows stay in L2
constexpr int64_t kColBlock = 1024;    // columns of b packed at a time, at most
constexpr int64_t kStrip = 256;        // columns of a task at a time
constexpr int64_t kPackedB = 1 << 20;  // elements of b packed at a time, about
constexpr int64_t kRun = 128;          // elements loaded at a time
constexpr int64_t kPad = 16;           // between rows, lest all of a tile lie in one set of L1
constexpr int64_t kMaxWidth = 32;      // of a panel, over all ISAs
constexpr double kWorthAThread =
    1 << 20;  // operations below which a task is not handed to another thread

constexpr int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
constexpr int64_t round_up(int64_t n, int64_t d) { return ceil_div(n, d) * d; }
double operations(const GemmArgs& g) {
  return 2.0 * double(g.m) * double(g.n) * double(std::max<int64_t>(g.k, 1));
}

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

/// Rows of a as a tile reads them: packed, or each along k and `stride` elements after the last.
template <class Element>
struct Left {
  const Element* rows;
  bool packed;
  int64_t stride;
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

  /// Of rows along k, numbers of A stay where they are and others are converted, row by row.
  Left<A> left(const Lines& a, int64_t first, int64_t n, int64_t k0, int64_t depth, A* room) const {
    if (a.k_stride != 1) return {room, true, 0, pack(a, first, n, k0, depth, kernels.rows, room)};
    const int64_t stride = depth + kPad;
    for (int64_t i = 0; a.dtype != dtype_for<A>() && i < n; ++i)
      load_run(a.at(first + i, k0), a.dtype, 1, depth, room + i * stride);
    if (a.dtype != dtype_for<A>()) return {room, false, stride, kNoneIsSmall};
    return {static_cast<const A*>(a.at(first, k0)), false, a.stride, kNoneIsSmall};
  }
  void multiply(int64_t m, int64_t n, int64_t k, const Left<A>& a, const A* b, const Stored<A>& to,
                bool /*small*/) const {
    a.packed ? kernels.multiply(m, n, k, a.rows, b, to)
             : kernels.multiply_rows(m, n, k, a.rows, a.stride, b, to);
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
    return {room, true, 0, pack(a, first, n, k0, depth, rows(), room)};
  }
  void multiply(int64_t m, int64_t n, int64_t k, const Left<uint32_t>& a, const uint32_t* b,
                const Stored<float>& to, bool small) const {
    const PairKernels& kernels = *isa().pairs;
    (small ? kernels.multiply_widened : kernels.multiply)(m, n, k, a.rows, b, to);
  }
};

/// Whether a sum of products of bf16 numbers, the smallest of either side as given, may meet a
/// subnormal: all are multiples of 2^(their exponents - 14), so that no sum is smaller.
bool may_be_subnormal(uint32_t least_a, uint32_t least_b) {
  constexpr uint32_t kDigits = 7, kBias = 127;
  const uint32_t a = least_a >> kDigits, b = least_b >> kDigits;
  return a == 0 || b == 0 || a + b < kBias + 1 + 2 * kDigits;
}

/// c is cut into blocks of columns, for each of which b is packed once, and these into tasks.
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
    depth_ = round_up(ceil_div(k, ceil_div(k, kDepth)), Way::kPer);
    block_cols_ = std::clamp(kPackedB / k, kColBlock / 4, kColBlock);
    block_cols_ = std::min(round_up(block_cols_, way.cols()), round_up(g.n, way.cols()));
    apart_ = g.accumulate || g.alpha != 1 ||
             (g.c_dtype != dtype_for<A>() &&
              (!Way::rounds_to(g.c_dtype) || depth_ < g.k || Probe::current()));
  }

  void run() {
    Scratch<A> bias(g_.bias ? size_t(g_.n) : 0);
    if (g_.bias) bias_ = load_run(g_.bias, g_.bias_dtype, 1, g_.n, bias.data());
    Scratch<Element> packed(size_t(elements(g_.k) * block_cols_));
    for (int64_t j = 0; j < g_.n; j += block_cols_) {
      int64_t cols = std::min(block_cols_, g_.n - j);
      const uint32_t least = pack_b(j, cols, packed.data());
      run_block(j, cols, packed.data(), least);
    }
  }

 private:
  /// Of a panel, per line.
  static int64_t elements(int64_t depth) { return ceil_div(depth, Way::kPer); }

  /// One slab of `depth_` after the other, each with block_cols_ columns.
  uint32_t pack_b(int64_t j0, int64_t cols, Element* packed) const {
    const int64_t group = 4 * way_.cols();
    std::atomic<uint32_t> least = kNoneIsSmall;
    parallel_for(cols, round_up(std::max(group, kPackedB / 16 / std::max<int64_t>(g_.k, 1)), group),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = 0; k < g_.k; k += depth_) {
                     const int64_t depth = std::min(depth_, g_.k - k);
                     const uint32_t here =
                         way_.pack(b_, j0 + begin, end - begin, k, depth, way_.cols(),
                                   packed + elements(k) * block_cols_ + begin * elements(depth));
                     for (uint32_t old = least;
                          here < old && !least.compare_exchange_weak(old, here);)
                       ;
                   }
                 });
    return least;
  }

  /// Tasks are rows by columns: many columns, as each task packs its rows of a, unless there are
  /// few rows.
  void run_block(int64_t j0, int64_t cols, const Element* packed, uint32_t least_b) const {
    const int64_t row_tasks = ceil_div(g_.m, kRowBlock);
    const int64_t task_cols =
        std::max(round_up(ceil_div(cols * row_tasks, 8), way_.cols()), 4 * way_.cols());
    const int64_t col_tasks = ceil_div(cols, std::min(cols, task_cols));
    const double tasks = double(row_tasks * col_tasks);
    const double each = operations(g_) * double(cols) / double(g_.n) / tasks;
    parallel_for(
        row_tasks * col_tasks, int64_t(std::clamp(kWorthAThread / each, 1.0, tasks)),
        [&](int64_t begin, int64_t end) {
          Scratch<Element> rows(size_t(kRowBlock * (elements(depth_) + kPad)));
          Scratch<A> sums(
              apart_ ? size_t(kRowBlock * (depth_ < g_.k ? round_up(block_cols_, kStrip) : kStrip))
                     : 0);
          for (int64_t t = begin; t < end; ++t) {
            int64_t i = t / col_tasks * kRowBlock, j = t % col_tasks * task_cols;
            Rectangle r{i, std::min(kRowBlock, g_.m - i), j0 + j, std::min(task_cols, cols - j)};
            task(r, packed, j, least_b, rows.data(), sums.data());
          }
        });
  }

  struct Rectangle {
    int64_t i, rows, j, cols;
  };

  /// In strips of columns, so that sums which are stored elsewhere are still in cache then.
  /// @param j where the rectangle's columns are in the packed block
  void task(const Rectangle& r, const Element* packed, int64_t j, uint32_t least_b, Element* rows,
            A* sums) const {
    bool small = false;  // from the first slab where it is so, as the sums then go on
    for (int64_t k = 0; k == 0 || k < g_.k; k += depth_) {
      const int64_t depth = std::min(depth_, g_.k - k), deep = elements(depth);
      const Left<Element> a = way_.left(a_, r.i, r.rows, k, depth, rows);
      small = small || may_be_subnormal(a.least, least_b);
      for (int64_t s = 0; s < r.cols; s += kStrip) {
        const Rectangle strip{r.i, r.rows, r.j + s, std::min(kStrip, r.cols - s)};
        const bool last = k + depth >= g_.k;
        Stored<A> to = place(strip);
        if (apart_)
          to = {sums + (depth_ < g_.k ? s * kRowBlock : 0), kStrip, false};
        else if (last && g_.bias)
          to.bias = bias_ + strip.j;
        to.add = k > 0;
        way_.multiply(strip.rows, strip.cols, deep, a,
                      packed + elements(k) * block_cols_ + (j + s) * deep, to, small);
        if (apart_ && last) finish(strip, static_cast<A*>(to.c));
      }
    }
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

void check(const GemmArgs& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0)
    fail("gemm: m, n, k must be 0 or more, not ", g.m, ", ", g.n, ", ", g.k);
  auto operand = [](const char* name, const void* data, DType dtype, bool needed) {
    if (needed && !data) fail("gemm: ", name, " is null");
    if (!is_floating(dtype))
      fail("gemm: ", name, " is ", name_of(dtype),
           "; a matrix product takes f16, bf16, f32 or f64: cast it first");
  };
  const bool writes = g.m > 0 && g.n > 0, reads = writes && g.k > 0;
  operand("a", g.a.data, g.a.dtype, reads);
  operand("b", g.b.data, g.b.dtype, reads);
  operand("c", g.c, g.c_dtype, writes);
  operand("bias", g.bias, g.bias_dtype, false);
}

bool in_f64(const GemmArgs& g) {
  return g.a.dtype == DType::f64 || g.b.dtype == DType::f64 || g.c_dtype == DType::f64 ||
         (g.bias && g.bias_dtype == DType::f64);
}

bool in_pairs(const GemmArgs& g) {
  auto fits = [](const MatrixRef& x) {
    return x.dtype == DType::bf16 && (x.row_stride == 1 || x.col_stride == 1);
  };
  return isa().pairs && fits(g.a) && fits(g.b);
}

/// Small enough that packing would cost more than it saves, and laid out as a tile reads it.
bool runs_unpacked(const GemmArgs& g) {
  constexpr int64_t kSmall = 4096;  // numbers of an operand: 16 KB
  auto fits = [](DType d) { return d == DType::f32 || is_half(d); };
  const bool dense = g.b.col_stride == 1 && g.n % isa().f32.cols == 0 &&
                     (g.a.dtype == DType::f32 || g.a.col_stride == 1);
  const bool plain = !g.bias && g.alpha == 1 && !g.accumulate;
  return dense && plain && g.k * std::max(g.m, g.n) <= kSmall && fits(g.a.dtype) &&
         fits(g.b.dtype) && (g.c_dtype == DType::f32 || (fits(g.c_dtype) && !Probe::current()));
}

/// The matrix in f32, converted into `room` if it is not.
MatrixRef in_f32(const MatrixRef& x, int64_t rows, int64_t cols, float* room) {
  if (x.dtype == DType::f32) return x;
  const bool one_run = x.row_stride == cols;
  for (int64_t i = 0; i < (one_run ? 1 : rows); ++i)
    load_run(advance(x.data, x.dtype, i * x.row_stride), x.dtype, 1, one_run ? rows * cols : cols,
             room + i * cols);
  return {room, DType::f32, cols, 1};
}

void multiply_unpacked(const GemmArgs& g) {
  const bool convert = g.a.dtype != DType::f32 || g.b.dtype != DType::f32;
  const Scratch<float> room(convert ? size_t((g.m + g.n) * g.k) : 0);
  const MatrixRef a = in_f32(g.a, g.m, g.k, room.data());
  const MatrixRef b = in_f32(g.b, g.k, g.n, room.data() + g.m * g.k);
  isa().f32.multiply_unpacked(g.m, g.n, g.k, static_cast<const float*>(a.data), a.row_stride,
                              a.col_stride, static_cast<const float*>(b.data), b.row_stride,
                              stored<float>(g.c, g.c_dtype, g.c_row_stride));
}

}  // namespace

void gemm(const GemmArgs& args) {
  check(args);
  if (args.m == 0 || args.n == 0) return;
  if (in_f64(args))
    Product(args, Wide<double>{isa().f64}).run();
  else if (in_pairs(args))
    Product(args, Paired{}).run();
  else if (runs_unpacked(args))
    multiply_unpacked(args);
  else
    Product(args, Wide<float>{isa().f32}).run();
}

void gemm_batched(std::span<const GemmArgs> batch) {
  double most = 1;
  for (const GemmArgs& g : batch) most = std::max(most, operations(g));
  const bool few_and_large = batch.size() < 8 && most > 16 * kWorthAThread;
  const int64_t n = int64_t(batch.size());
  const int64_t grain = few_and_large ? n : std::max<int64_t>(1, int64_t(kWorthAThread / most));
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (const GemmArgs& g : batch.subspan(size_t(begin), size_t(end - begin))) gemm(g);
  });
}

void gemm_reference(const GemmArgs& g) {
  check(g);
  auto at = [](const void* data, DType dtype, int64_t offset) {
    double x;
    return *load_run(advance(data, dtype, offset), dtype, 1, 1, &x);
  };
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < g.k; ++k)
        sum += at(g.a.data, g.a.dtype, i * g.a.row_stride + k * g.a.col_stride) *
               at(g.b.data, g.b.dtype, k * g.b.row_stride + j * g.b.col_stride);
      double value = g.alpha * sum + (g.bias ? at(g.bias, g.bias_dtype, j) : 0.0);
      int64_t offset = i * g.c_row_stride + j;
      if (g.accumulate) value += at(g.c, g.c_dtype, offset);
      store_run(advance(g.c, g.c_dtype, offset), g.c_dtype, 1, 1, &value);
    }
}

}  // namespace minim
