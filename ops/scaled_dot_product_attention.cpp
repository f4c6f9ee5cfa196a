#include "minim/ops/attention.h"

#include "minim/core/sum.h"

#include <cmath>
#include <vector>

namespace minim::op {
namespace {

using Attention = ScaledDotProductAttention;

/// Whether none of the rows has an infinity or NaN, by the bits: those have every bit of the
/// exponent.
template <class U, U exponent>
struct FiniteRows {
  static void run(const U* x, Index rows, Index cols, Index row_stride, bool* finite) {
    typedef U Many __attribute__((vector_size(64)));
    constexpr Index n = sizeof(Many) / sizeof(U);
    Many many, bad{};
    U rest = 0;
    for (Index i = 0; i < rows; ++i, x += row_stride) {
      Index j = 0;
      for (; j + n <= cols; j += n)
        std::memcpy(&many, x + j, sizeof many), bad |= Many((many & exponent) == exponent);
      for (; j < cols; ++j) rest |= U((x[j] & exponent) == exponent);
    }
    for (Index l = 0; l < n; ++l) rest |= bad[l];
    *finite = !rest;
  }
};

template <class A>
bool all_finite(const MatrixRef& m, Index rows, Index cols) {
  bool finite = true;
  auto by_bits = [&]<class U, U exponent>() {
    per_isa<float, FiniteRows<U, exponent>>(static_cast<const U*>(m.data), rows, cols, m.row_stride,
                                            &finite);
    return finite;
  };
  if (m.col_stride == 1 && m.dtype == DType::f32)
    return by_bits.template operator()<uint32_t, 0x7f800000u>();
  if (m.col_stride == 1 && m.dtype == DType::f16)
    return by_bits.template operator()<uint16_t, 0x7c00u>();
  if (m.col_stride == 1 && m.dtype == DType::bf16)
    return by_bits.template operator()<uint16_t, 0x7f80u>();
  Scratch<A> buffer{size_t(cols)};
  for (Index i = 0; i < rows && finite; ++i) {
    const A* row = load_run(advance(m.data, m.dtype, i * m.row_stride), m.dtype, m.col_stride, cols,
                            buffer.data());
    finite = sum16<A>(cols, [=](Index j) { return row[j] - row[j]; }) == 0;  // or NaN
  }
  return finite;
}

/// c += alpha a b for the values of b that are not finite (0 in `bad` stands for the others), but
/// where the weight is 0. Once a row of c is all NaN it stays so.
template <class A>
void add_bad(Index m, Index n, Index k, A alpha, const MatrixRef& a, const A* bad, A* c) {
  std::vector<Index> rows;
  for (Index j = 0; j < k; ++j)
    if (std::any_of(bad + j * n, bad + (j + 1) * n, [](A v) { return v != 0; })) rows.push_back(j);
  parallel_for(m, 16, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i)
      for (const Index row : rows) {
        const A weight = static_cast<const A*>(a.data)[i * a.row_stride + row * a.col_stride];
        if (weight == 0) continue;
        const A *values = bad + row * n, by = alpha * weight;
        A* to = c + i * n;
        bool more = false;
        MINIM_IVDEP
        for (Index j = 0; j < n; ++j) {
          to[j] = math::select(values[j] == A(0), to[j], to[j] + by * values[j]);
          more |= to[j] == to[j];
        }
        if (!more) break;
      }
  });
}

/// product() of weights of type A, in which a weight of 0 adds nothing, whatever it weighs: 0 * inf
/// would be NaN. Values that are not finite are added after the product of the others.
template <class A>
void weighted(Index m, Index n, Index k, double alpha, const MatrixRef& a, const MatrixRef& b, A* c,
              bool add = false) {
  constexpr DType dtype = dtype_for<A>();
  if (all_finite<A>(b, k, n)) return product(m, n, k, alpha, a, b, c, dtype, add);
  Scratch<A> clean(size_t(k * n)), bad(size_t(k * n));
  copy({const_cast<void*>(b.data), b.dtype, {k, n}, {b.row_stride, b.col_stride}, true},
       {clean.data(), dtype, {k, n}, {n, 1}, true});
  for (Index j = 0; j < k * n; ++j) {
    A& v = clean.data()[j];
    bad.data()[j] = std::isfinite(v) ? A(0) : std::exchange(v, 0);
  }
  product(m, n, k, alpha, a, {clean.data(), dtype, n, 1}, c, dtype, add);
  add_bad<A>(m, n, k, A(alpha), a, bad.data(), c);
}

/// Row `query` of a head's scores becomes probabilities; keys that it does not see get 0, whatever
/// their score.
template <class A>
void masked_softmax(const AttentionCall& call, Index head, Index query, A* row) {
  constexpr A kNever = -std::numeric_limits<A>::infinity();
  const Index n = call.keys, seen = call.seen_before(query + 1);
  const bool any =
      call.masked() ? call.hide(head * call.queries + query, 0, seen, kNever, row) : seen > 0;
  if (!any) return std::fill_n(row, n, A(0)), void();
  std::fill(row + seen, row + n, kNever);
  const A largest = max16<A>(n, [=](Index j) { return row[j]; });
  MINIM_IVDEP
  for (Index j = 0; j < n; ++j) row[j] = math::exp(row[j] - largest);
  const A total = sum16<A>(n, [=](Index j) { return row[j]; });
  for (Index j = 0; j < n; ++j) row[j] /= total;
}

/// A head's probabilities after dropout, in `to` unless there is none.
template <class A>
MatrixRef dropped(const AttentionCall& c, Index head, const A* p, A* to) {
  if (c.attrs.dropout > 0) {
    std::copy(p, p + c.queries * c.keys, to);
    for (Index i = 0; i < c.queries; ++i) c.drop(head * c.queries + i, 0, c.keys, to + i * c.keys);
    p = to;
  }
  return {p, dtype_for<A>(), c.keys, 1};
}
Index room_for_dropped(const AttentionCall& c) {
  return c.attrs.dropout > 0 ? c.queries * c.keys : 0;
}

/// Fills `p` (queries, keys) with those of a head.
template <class A>
void probabilities(const AttentionCall& c, Index head, A* p) {
  product(c.queries, c.keys, c.width, c.scale, c.q[head], transposed(c.k[head / c.group]), p,
          dtype_for<A>());
  parallel_for(c.queries, 16, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) masked_softmax(c, head, i, p + i * c.keys);
  });
}

/// A head's result, from its probabilities.
template <class A>
void forward_head(const OpArgs& args, const AttentionCall& c, Index h, const A* p) {
  const Scratch<A> copy(size_t(room_for_dropped(c))), y(size_t(c.queries * c.value_width));
  weighted<A>(c.queries, c.value_width, c.keys, 1, dropped(c, h, p, copy.data()), c.v[h / c.group],
              y.data());
  store_rows(y.data(), c.value_width, c.queries, c.value_width, args.out[0], h);
}

template <class A>
void forward_in(OpArgs& args) {
  const AttentionCall c(args);
  parallel_for(c.heads, 1, [&](Index begin, Index end) {
    for (Index h = begin; h < end; ++h) {
      A* p = static_cast<A*>(args.out[1].data) + h * c.queries * c.keys;
      probabilities(c, h, p);
      forward_head(args, c, h, p);
    }
  });
}

/// Turns the gradient of a row of probabilities into that of its scores. Keys of probability 0 get
/// 0, whatever theirs is.
template <class A>
void softmax_gradient(const A* p, Index n, A* d) {
  const A mean =
      sum16<A>(n, [=](Index j) { return math::select(p[j] == A(0), A(0), p[j] * d[j]); });
  MINIM_IVDEP
  for (Index j = 0; j < n; ++j) d[j] = math::select(p[j] == A(0), A(0), p[j] * (d[j] - mean));
}

/// The gradients of the heads that share k and v. @param p_of the probabilities of one
template <class A, class P>
void backward_heads(const OpArgs& args, const AttentionCall& c, Index kv, P p_of) {
  const Matrices g(args.grad_out[0], leading(args.in[0].shape, 2));
  const Arg &dq = args.grad_in[0], &dk = args.grad_in[1], &dv = args.grad_in[2];
  Scratch<A> d(size_t(c.queries * c.keys)), copy(size_t(room_for_dropped(c))),
      dq_sum(size_t(c.queries * c.width)), dk_sum(size_t(c.keys * c.width)),
      dv_sum(size_t(c.keys * c.value_width));
  const MatrixRef d_scores{d.data(), dtype_for<A>(), c.keys, 1};
  for (Index h = kv * c.group; h < (kv + 1) * c.group; ++h) {
    const A* p = p_of(h);
    const bool first = h % c.group == 0;
    if (dv.data)
      weighted<A>(c.keys, c.value_width, c.queries, 1, transposed(dropped(c, h, p, copy.data())),
                  g[h], dv_sum.data(), !first);
    product(c.queries, c.keys, c.value_width, 1, g[h], transposed(c.v[kv]), d.data(),
            dtype_for<A>());
    parallel_for(c.queries, 16, [&](Index begin_row, Index end_row) {
      for (Index i = begin_row; i < end_row; ++i) {
        c.drop(h * c.queries + i, 0, c.keys, d.data() + i * c.keys);
        softmax_gradient(p + i * c.keys, c.keys, d.data() + i * c.keys);
      }
    });
    if (dq.data) weighted<A>(c.queries, c.width, c.keys, c.scale, d_scores, c.k[kv], dq_sum.data());
    store_rows(dq_sum.data(), c.width, c.queries, c.width, dq, h);
    if (dk.data)
      weighted<A>(c.keys, c.width, c.queries, c.scale, transposed(d_scores), c.q[h], dk_sum.data(),
                  !first);
  }
  store_rows(dk_sum.data(), c.width, c.keys, c.width, dk, kv);
  store_rows(dv_sum.data(), c.value_width, c.keys, c.value_width, dv, kv);
}

template <class A>
void backward_in(OpArgs& args) {
  const AttentionCall c(args);
  const A* all = static_cast<const A*>(args.out[1].data);
  parallel_for(c.heads / c.group, 1, [&](Index begin, Index end) {
    for (Index kv = begin; kv < end; ++kv)
      backward_heads<A>(args, c, kv, [&](Index h) { return all + h * c.queries * c.keys; });
  });
}

/// Tiles multiply what a row does not see by 0, which NaN and inf survive: heads that have any take
/// the formula, on probabilities that backward makes again.
template <class A, bool backward>
void by_formula(const OpArgs& args, const AttentionCall& c, Index kv) {
  Scratch<A> p(size_t(c.queries * c.keys));
  auto p_of = [&](Index h) { return probabilities(c, h, p.data()), p.data(); };
  if constexpr (backward)
    backward_heads<A>(args, c, kv, p_of);
  else
    for (Index h = kv * c.group; h < (kv + 1) * c.group; ++h) forward_head<A>(args, c, h, p_of(h));
}
template <class A>
void forward_tiles(OpArgs& args) {
  fused_attention<A>(args, by_formula<A, false>);
}
template <class A>
void backward_tiles(OpArgs& args) {
  fused_attention_backward<A>(args, by_formula<A, true>);
}

using ByKernel = Kernel[2];
constexpr ByKernel kForward[] = {{forward_tiles<float>, forward_in<float>},
                                 {forward_tiles<double>, forward_in<double>}};
constexpr ByKernel kBackward[] = {{backward_tiles<float>, backward_in<float>},
                                  {backward_tiles<double>, backward_in<double>}};
void run(const ByKernel* kernels, OpArgs& args) {
  kernels[compute_in(args.dtype) == Compute::f64][size_t(args.attrs.as<Attention::Attrs>().kernel)](
      args);
}

}  // namespace

template <class A>
bool all_finite(const Matrices& heads, Index first, Index n, Index rows, Index cols) {
  for (Index head = first; head < first + n; ++head)
    if (!all_finite<A>(heads[head], rows, cols)) return false;
  return true;
}
template bool all_finite<float>(const Matrices&, Index, Index, Index, Index);
template bool all_finite<double>(const Matrices&, Index, Index, Index, Index);

void ScaledDotProductAttention::infer(OpArgs& args) {
  const Shape &q = args.in[0].shape, &k = args.in[1].shape, &v = args.in[2].shape;
  for (int i = 0; i < 3; ++i)
    if (!is_floating(args.in[i].dtype))
      fail("[scaled_dot_product_attention] ", spec.operands[size_t(i)].name, " is ",
           name_of(args.in[i].dtype), args.in[i].shape,
           "; it takes floating operands: convert with .to()");
  const int rank = q.rank();
  auto fit = [&] {
    if (rank < 2 || k.rank() != rank || leading(k, 1) != leading(v, 1) ||
        q[rank - 1] != k[rank - 1])
      return false;
    if (leading(q, 2) == leading(k, 2)) return true;
    return rank > 2 && leading(q, 3) == leading(k, 3) && std::min(q[rank - 3], k[rank - 3]) > 0 &&
           q[rank - 3] % k[rank - 3] == 0;
  };
  if (!fit())
    fail("[scaled_dot_product_attention] q ", q, ", k ", k, " and v ", v,
         " do not fit: they are (..., Tq, D), (..., Tk, D) and (..., Tk, Dv) with the same leading "
         "sizes, but for heads, the last of these, of which k and v may have a divisor of q's");
  const Attrs& attrs = args.attrs.as<Attrs>();
  if (!(attrs.dropout >= 0 && attrs.dropout < 1))
    fail("[scaled_dot_product_attention] dropout must be in [0, 1), not ", attrs.dropout);
  Shape scores = leading(q, 1);
  scores.push_back(k[rank - 2]);
  if (const Shape& mask = args.in[3].shape; args.in[3].defined)
    if (!(broadcast(scores, mask, "scaled_dot_product_attention") == scores))
      fail("[scaled_dot_product_attention] mask ", mask, " is larger than the scores ", scores);
  args.out[0].shape = leading(q, 1);
  args.out[0].shape.push_back(v[rank - 1]);
  args.out[0].strides = dense_strides(args.out[0].shape, args.in[0].strides);
  args.out[1].shape = scores;
  if (attrs.kernel == AttentionKernel::fused) args.out[1].shape[rank - 1] = 2;
}

void ScaledDotProductAttention::forward(OpArgs& args) { run(kForward, args); }
void ScaledDotProductAttention::backward(OpArgs& args) { run(kBackward, args); }

std::vector<Example> ScaledDotProductAttention::examples() {
  Examples<Attrs> all;
  const Shape& none = all.none;
  for (AttentionKernel kernel : {AttentionKernel::fused, AttentionKernel::reference}) {
    for (bool causal : {false, true})
      for (const Shape& mask : {none, Shape{4, 4}, Shape{2, 1, 1, 4}})
        all.add({{2, 3, 4, 2}, {2, 3, 4, 2}, {2, 3, 4, 2}, mask}, {causal, 0, 0, kernel});
    all.add({{3, 2}, {5, 2}, {5, 4}, none}, {false, 0.5, 0, kernel});  // no batch, other sizes
    all.add({{1, 3, 2}, {1, 5, 2}, {1, 5, 1}, {3, 5}}, {true, 0, 0, kernel});
    // grouped heads; no key; no query
    all.add({{1, 4, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}, none}, {true, 0, 0.5, kernel});
    all.add({{2, 3, 2}, {2, 0, 2}, {2, 0, 2}, none}, {false, 0, 0, kernel});
    all.add({{2, 0, 2}, {2, 3, 2}, {2, 3, 2}, none}, {false, 0, 0, kernel});
  }
  return all;
}

}  // namespace minim::op
