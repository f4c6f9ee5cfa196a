// ops/attention.h -- what the two implementations of scaled_dot_product_attention share.
#pragma once
#include <algorithm>

#include "minim/core/loops.h"
#include "minim/ops/dropout.h"
#include "minim/ops/matrix.h"
#include "minim/ops/scaled_dot_product_attention.h"

namespace minim::op {

/// One call: its sizes, its operands head by head, and who sees whom. Heads are counted over all
/// leading axes; `group` heads in a row of q share one of k and v.
struct AttentionCall {
  ScaledDotProductAttention::Attrs attrs;
  Index heads, group, queries, keys, width, value_width;
  double scale;
  Matrices q, k, v;

  explicit AttentionCall(const OpArgs& args)
      : attrs(args.attrs.as<ScaledDotProductAttention::Attrs>()),
        q(args.in[0], leading(args.in[0].shape, 2)),
        k(args.in[1], leading(args.in[1].shape, 2)),
        v(args.in[2], leading(args.in[2].shape, 2)),
        rng_(args.rng) {
    auto last = [&](int k, int i) { return args.in[k].shape[args.in[k].shape.rank() - i]; };
    queries = last(0, 2), keys = last(1, 2), width = last(0, 1), value_width = last(2, 1);
    heads = leading(args.in[0].shape, 2).numel();
    group = std::max<Index>(1, heads / std::max<Index>(1, leading(args.in[1].shape, 2).numel()));
    scale = attrs.scale == 0 ? 1 / std::sqrt(double(std::max<Index>(1, width))) : attrs.scale;
    if (!args.in[3].defined) return;
    mask_ = static_cast<const bool*>(args.in[3].data);
    rows_ = leading(args.in[0].shape, 1);
    Shape scores = rows_;
    scores.push_back(keys);
    Strides strides = broadcast_strides(args.in[3].shape, args.in[3].strides, scores);
    mask_step_ = strides[strides.rank() - 1];
    mask_strides_ = leading(strides, 1);
  }

  bool masked() const { return mask_ != nullptr; }
  /// x[j] = hidden where the mask hides key first + j from a row (head * queries + query); whether
  /// one of the n is left. @pre masked()
  template <class A>
  bool hide(Index row, Index first, Index n, A hidden, A* x) const {
    const bool* mask = mask_ + offset_of(row, rows_, mask_strides_) + first * mask_step_;
    bool any = false;
    for (Index j = 0; j < n; ++j) {
      any |= mask[j * mask_step_];
      x[j] = mask[j * mask_step_] ? x[j] : hidden;
    }
    return any;
  }
  /// How many keys causality lets the queries before `end` see.
  Index seen_before(Index end) const {
    return attrs.causal || end == 0 ? std::min(keys, end) : keys;
  }

  /// Dropout of the numbers at keys first, first + 1, ... of a row: what the op dropout does to the
  /// whole (..., Tq, Tk).
  template <class A>
  void drop(Index row, Index first, Index n, A* x) const {
    A draws[kBlock];
    for (Index j = 0; attrs.dropout > 0 && j < n; j += kBlock) {
      const Index count = std::min(kBlock, n - j);
      cpu::uniform_run(rng_, row * keys + first + j, count, draws);
      for (Index i = 0; i < count; ++i)
        x[j + i] = Dropout::forward<A>({attrs.dropout}, x[j + i], draws[i]);
    }
  }

 private:
  RngKey rng_;
  const bool* mask_ = nullptr;
  Shape rows_;
  Strides mask_strides_;
  Index mask_step_ = 0;
};

/// Rows [first, first + n) of a head of `to`, where that is wanted.
template <class A>
void store_rows(const A* from, Index stride, Index n, Index width, const Arg& to, Index head,
                Index first = 0) {
  if (!to.data) return;
  const Matrices heads(to, leading(to.shape, 2));
  const Index step = heads[head].row_stride, across = heads[head].col_stride;
  for (Index i = 0; i < n; ++i)
    store_run(advance(heads.data(head), to.dtype, (first + i) * step), to.dtype, across, width,
              from + i * stride);
}

/// Whether no number of heads [first, first + n) is an infinity or NaN.
template <class A>
bool all_finite(const Matrices& heads, Index first, Index n, Index rows, Index cols);

/// In tiles; out[1] is (..., Tq, 2).
/// @param formula what the heads of q that share head `kv` take where q, k and v, or the gradient,
/// are not all finite
using HeadFormula = void(const OpArgs& args, const AttentionCall& call, Index kv);
template <class A>
void fused_attention(OpArgs& args, HeadFormula* formula);
template <class A>
void fused_attention_backward(OpArgs& args, HeadFormula* formula);

}  // namespace minim::op
