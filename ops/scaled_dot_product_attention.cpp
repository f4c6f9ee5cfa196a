#include "minim/ops/scaled_dot_product_attention.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

using Attention = ScaledDotProductAttention;

struct Sizes {
  Shape batch;
  Index heads, queries, keys, width, value_width;
  double scale;

  explicit Sizes(const OpArgs& args) : batch(leading(args.in[0].shape, 2)), heads(batch.numel()) {
    auto last = [&](int k, int i) { return args.in[k].shape[args.in[k].shape.rank() - i]; };
    queries = last(0, 2), keys = last(1, 2), width = last(0, 1), value_width = last(2, 1);
    scale = args.attrs.as<Attention::Attrs>().scale;
    if (scale == 0) scale = 1 / std::sqrt(double(std::max<Index>(1, width)));
  }
};

void product(Index m, Index n, Index k, double alpha, const MatrixRef& a, const MatrixRef& b,
             void* c, DType c_dtype) {
  GemmArgs g;
  g.m = m, g.n = n, g.k = k;
  g.a = a, g.b = b;
  g.c = c, g.c_dtype = c_dtype, g.c_row_stride = n;
  g.alpha = alpha;
  gemm(g);
}

template <class A>
bool all_finite(const MatrixRef& m, Index rows, Index cols) {
  Scratch<A> buffer{size_t(cols)};
  for (Index i = 0; i < rows; ++i) {
    const A* row = load_run(advance(m.data, m.dtype, i * m.row_stride), m.dtype, m.col_stride, cols,
                            buffer.data());
    if (sum16<A>(cols, [=](Index j) { return row[j] - row[j]; }) != 0) return false;  // or NaN
  }
  return true;
}

/// product() of weights of type A, in which a weight of 0 adds nothing, whatever it weighs: 0 * inf
/// would be NaN. Values that are not finite are added after the product of the others.
template <class A>
void weighted(Index m, Index n, Index k, double alpha, const MatrixRef& a, const MatrixRef& b,
              void* c, DType c_dtype) {
  if (all_finite<A>(b, k, n)) return product(m, n, k, alpha, a, b, c, c_dtype);
  Scratch<A> clean(size_t(k * n));
  copy({const_cast<void*>(b.data), b.dtype, {k, n}, {b.row_stride, b.col_stride}, true},
       {clean.data(), dtype_for<A>(), {k, n}, {n, 1}, true});
  std::vector<std::tuple<Index, Index, A>> bad;  // row, column, value
  for (Index j = 0; j < k * n; ++j)
    if (A& v = clean.data()[j]; !std::isfinite(v))
      bad.emplace_back(j / n, j % n, std::exchange(v, 0));
  product(m, n, k, alpha, a, {clean.data(), dtype_for<A>(), n, 1}, c, c_dtype);
  for (Index i = 0; i < m; ++i)
    for (auto [row, col, value] : bad) {
      const A weight = static_cast<const A*>(a.data)[i * a.row_stride + row * a.col_stride];
      if (weight == 0) continue;
      void* at = advance(c, c_dtype, i * n + col);
      A sum;
      sum =
          *load_run(static_cast<const void*>(at), c_dtype, 1, 1, &sum) + A(alpha) * weight * value;
      store_run(at, c_dtype, 1, 1, &sum);
    }
}

/// Which keys a query may attend to, all masks taken together.
class Visible {
 public:
  explicit Visible(const OpArgs& args)
      : causal_(args.attrs.as<Attention::Attrs>().causal), shape_(args.out[1].shape) {
    if (!args.in[3].defined) return;
    mask_ = static_cast<const bool*>(args.in[3].data);
    strides_ = broadcast_strides(args.in[3].shape, args.in[3].strides, shape_);
  }
  /// Fills `visible`, one per key, for row r of all queries; false when there is none.
  bool row(Index r, std::span<bool> visible) const {
    const int rank = shape_.rank();
    const Index keys = shape_[rank - 1], query = r % shape_[rank - 2];
    const bool* mask =
        mask_ ? mask_ + offset_of(r, leading(shape_, 1), leading(strides_, 1)) : nullptr;
    const Index step = mask_ ? strides_[rank - 1] : 0;
    bool any = false;
    for (Index j = 0; j < keys; ++j) {
      visible[size_t(j)] = (!causal_ || j <= query) && (!mask || mask[j * step]);
      any |= visible[size_t(j)];
    }
    return any;
  }

 private:
  bool causal_;
  Shape shape_;
  const bool* mask_ = nullptr;
  Strides strides_;
};

/// Turns a row of scores into probabilities; keys that are not visible get 0, whatever their score.
template <class A>
void masked_softmax(A* row, Index n, const bool* visible) {
  constexpr A kNever = -std::numeric_limits<A>::infinity();
  for (Index j = 0; j < n; ++j) row[j] = visible[j] ? row[j] : kNever;
  const A largest = max16<A>(n, [=](Index j) { return row[j]; });
#pragma GCC ivdep
  for (Index j = 0; j < n; ++j) row[j] = math::exp(row[j] - largest);
  const A total = sum16<A>(n, [=](Index j) { return row[j]; });
  for (Index j = 0; j < n; ++j) row[j] /= total;
}

template <class A>
void forward_in(OpArgs& args) {
  const Sizes s(args);
  const Matrices q(args.in[0], s.batch), k(args.in[1], s.batch), v(args.in[2], s.batch),
      out(args.out[0], s.batch);
  const Visible visible(args);
  A* all = static_cast<A*>(args.out[1].data);
  parallel_for(s.heads, 1, [&](Index begin, Index end) {
    for (Index h = begin; h < end; ++h) {
      A* scores = all + h * s.queries * s.keys;
      product(s.queries, s.keys, s.width, s.scale, q[h], transposed(k[h]), scores, dtype_for<A>());
      parallel_for(s.queries, 16, [&](Index first, Index last) {
        Scratch<bool> seen{size_t(s.keys)};
        for (Index i = first; i < last; ++i) {
          A* row = scores + i * s.keys;
          if (visible.row(h * s.queries + i, {seen.data(), size_t(s.keys)}))
            masked_softmax(row, s.keys, seen.data());
          else
            std::fill(row, row + s.keys, A(0));
        }
      });
      weighted<A>(s.queries, s.value_width, s.keys, 1, {scores, dtype_for<A>(), s.keys, 1}, v[h],
                  out.data(h), out.dtype());
    }
  });
}

/// Turns the gradient of a row of probabilities into that of its scores. Keys of probability 0 get
/// 0, whatever theirs is.
template <class A>
void softmax_gradient(const A* p, Index n, A* d) {
  const A mean =
      sum16<A>(n, [=](Index j) { return math::select(p[j] == A(0), A(0), p[j] * d[j]); });
#pragma GCC ivdep
  for (Index j = 0; j < n; ++j) d[j] = math::select(p[j] == A(0), A(0), p[j] * (d[j] - mean));
}

template <class A>
void backward_in(OpArgs& args) {
  const Sizes s(args);
  const Matrices q(args.in[0], s.batch), k(args.in[1], s.batch), v(args.in[2], s.batch),
      g(args.grad_out[0], s.batch);
  const Arg &dq = args.grad_in[0], &dk = args.grad_in[1], &dv = args.grad_in[2];
  const A* all = static_cast<const A*>(args.out[1].data);
  auto head = [](const Arg& to, Index h, Index rows, Index width) {
    return advance(to.data, to.dtype, h * rows * width);
  };
  parallel_for(s.heads, 1, [&](Index begin, Index end) {
    Scratch<A> d(size_t(s.queries * s.keys));
    for (Index h = begin; h < end; ++h) {
      const A* p = all + h * s.queries * s.keys;
      const MatrixRef probabilities{p, dtype_for<A>(), s.keys, 1},
          d_scores{d.data(), dtype_for<A>(), s.keys, 1};
      if (dv.data)
        weighted<A>(s.keys, s.value_width, s.queries, 1, transposed(probabilities), g[h],
                    head(dv, h, s.keys, s.value_width), dv.dtype);
      if (!dq.data && !dk.data) continue;
      product(s.queries, s.keys, s.value_width, 1, g[h], transposed(v[h]), d.data(),
              dtype_for<A>());
      parallel_for(s.queries, 16, [&](Index first, Index last) {
        for (Index i = first; i < last; ++i)
          softmax_gradient(p + i * s.keys, s.keys, d.data() + i * s.keys);
      });
      if (dq.data)
        weighted<A>(s.queries, s.width, s.keys, s.scale, d_scores, k[h],
                    head(dq, h, s.queries, s.width), dq.dtype);
      if (dk.data)
        weighted<A>(s.keys, s.width, s.queries, s.scale, transposed(d_scores), q[h],
                    head(dk, h, s.keys, s.width), dk.dtype);
    }
  });
}

}  // namespace

void ScaledDotProductAttention::infer(OpArgs& args) {
  const Shape &q = args.in[0].shape, &k = args.in[1].shape, &v = args.in[2].shape;
  for (int i = 0; i < 3; ++i)
    if (!is_floating(args.in[i].dtype))
      fail("[scaled_dot_product_attention] ", operands[size_t(i)].name, " is ",
           name_of(args.in[i].dtype), args.in[i].shape,
           "; it takes floating operands: convert with .to()");
  const int rank = q.rank();
  const bool fit = rank >= 2 && k.rank() == rank && v.rank() == rank &&
                   leading(q, 2) == leading(k, 2) && leading(k, 1) == leading(v, 1) &&
                   q[rank - 1] == k[rank - 1];
  if (!fit)
    fail("[scaled_dot_product_attention] q ", q, ", k ", k, " and v ", v,
         " do not fit: they are (..., Tq, D), (..., Tk, D) and (..., Tk, Dv) with the same leading "
         "sizes");
  Shape scores = leading(q, 1);
  scores.push_back(k[rank - 2]);
  if (const Shape& mask = args.in[3].shape; args.in[3].defined)
    if (!(broadcast(scores, mask, "scaled_dot_product_attention") == scores))
      fail("[scaled_dot_product_attention] mask ", mask, " is larger than the scores ", scores);
  args.out[0].shape = leading(q, 1);
  args.out[0].shape.push_back(v[rank - 1]);
  args.out[1].shape = scores;
}

void ScaledDotProductAttention::forward(OpArgs& args) {
  compute_in(args.dtype) == Compute::f64 ? forward_in<double>(args) : forward_in<float>(args);
}

void ScaledDotProductAttention::backward(OpArgs& args) {
  compute_in(args.dtype) == Compute::f64 ? backward_in<double>(args) : backward_in<float>(args);
}

std::vector<Example> ScaledDotProductAttention::examples() {
  std::vector<Example> list;
  const Shape none{-1};
  auto add = [&](const Shape& q, const Shape& k, const Shape& v, const Shape& mask, Attrs attrs) {
    list.push_back({{q, k, v, mask}, minim::Attrs(attrs), 0});
  };
  for (bool causal : {false, true})
    for (const Shape& mask : {none, Shape{4, 4}, Shape{2, 1, 1, 4}})
      add({2, 3, 4, 2}, {2, 3, 4, 2}, {2, 3, 4, 2}, mask, {causal, 0});
  add({3, 2}, {5, 2}, {5, 4}, none, {false, 0.5});  // no batch, other sizes
  add({1, 3, 2}, {1, 5, 2}, {1, 5, 1}, {3, 5}, {true, 0});
  add({2, 3, 2}, {2, 0, 2}, {2, 0, 2}, none, {});  // no key
  add({2, 0, 2}, {2, 3, 2}, {2, 3, 2}, none, {});  // no query
  return list;
}

}  // namespace minim::op
