#include "minim/models/attention.h"

#include "minim/autograd/node.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

AttentionConfig checked(AttentionConfig c) {
  if (c.heads < 1 || c.width % c.heads != 0)
    fail("a width of ", c.width, " is not divisible by heads ", c.heads,
         ": each head takes width / heads columns");
  if (!(c.dropout >= 0 && c.dropout < 1)) fail("dropout must be in [0, 1), not ", c.dropout);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.kv_heads < 1 || c.heads % c.kv_heads != 0)
    fail(c.heads, " heads cannot share ", c.kv_heads,
         " heads of keys and values: the first must be a multiple of the second");
  return c;
}
Index qkv_width(const AttentionConfig& c) { return c.width + 2 * c.kv_heads * (c.width / c.heads); }

}  // namespace

std::pair<Tensor, Tensor> LayerCache::append(const Tensor& new_k, const Tensor& new_v,
                                             Index capacity) {
  if (GradMode::enabled() && (new_k.requires_grad() || new_v.requires_grad()))
    fail(
        "a cache keeps keys and values without a history, and their gradients would be lost; "
        "call the model under NoGrad, or without a cache");
  const Index end = length + new_k.size(2);
  if (end > capacity)
    fail("a cache of ", capacity, " tokens cannot hold ", end, "; begin a new one");
  auto room = [&](Tensor& all, const Tensor& more) {
    if (!all.defined()) {
      Shape shape = more.shape();
      shape[normalize_axis(2, more.rank(), "cache")] = capacity;
      all = zeros(shape, more.dtype(), more.device());
    }
    Tensor to = all.slice(2, length, end);
    if (!(to.shape() == more.shape()) || to.dtype() != more.dtype())
      fail("a cache of ", name_of(all.dtype()), all.shape(), " cannot take ", name_of(more.dtype()),
           more.shape(), " as its next ", end - length, " tokens; begin a new one");
    return to;
  };
  Tensor to_k = room(k, new_k), to_v = room(v, new_v);
  to_k.copy_(new_k), to_v.copy_(new_v);
  length = end;
  return {k.slice(2, 0, end), v.slice(2, 0, end)};
}

MultiHeadAttention::MultiHeadAttention(const AttentionConfig& c)
    : qkv(c.width, qkv_width(checked(c)), c.bias),
      out(c.width, c.width, c.bias),
      config_(checked(c)) {
  child("qkv", qkv);
  child("out", out);
}

Tensor MultiHeadAttention::attend(const Tensor& x, LayerCache* cache) const {
  if (x.rank() != 3) fail("attention takes x as (batch, time, width), not ", x.shape());
  const Index batch = x.size(0), time = x.size(1), head = config_.width / config_.heads;
  const Index before = cache ? cache->length : 0;
  if (before > 0 && time > 1)
    fail("a cache of ", before, " tokens takes one more at a time, not ", time);
  Tensor all = qkv(x);
  Index column = 0;
  auto next = [&](Index heads) {
    const Index from = std::exchange(column, column + heads * head);
    return all.slice(2, from, column).reshape({batch, time, heads, head}).transpose(1, 2);
  };
  Tensor q = next(config_.heads), k = next(config_.kv_heads), v = next(config_.kv_heads);
  if (config_.rope) q = rope(q, {.offset = before}), k = rope(k, {.offset = before});
  if (cache) std::tie(k, v) = cache->append(k, v, config_.capacity);
  Tensor y = scaled_dot_product_attention(
      q, k, v, {},
      {.causal = time > 1, .dropout = training() ? config_.dropout : 0, .kernel = config_.kernel});
  return out(y.transpose(1, 2).reshape({batch, time, config_.width}));
}

}  // namespace minim::models
