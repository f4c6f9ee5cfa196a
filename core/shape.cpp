#include "minim/core/shape.h"

#include <algorithm>

namespace minim {

std::string to_string(const Dims& dims) {
  std::string text = "(";
  for (int i = 0; i < dims.rank(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + ")";
}

Index Dims::numel() const {
  constexpr Index kMost = Index{1} << 59;  // 8 bytes each
  Index n = 1;
  bool empty = false;
  for (Index x : *this) {
    empty |= x == 0;
    if (__builtin_mul_overflow(n, x == 0 ? 1 : x, &n) || n > kMost || n < -kMost)
      fail("the shape ", *this, " has more elements than memory can hold");
  }
  return empty ? 0 : n;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  Index step = 1;
  for (int i = shape.rank(); i-- > 0; step *= std::max<Index>(shape[i], 1)) strides[i] = step;
  return strides;
}

Strides dense_strides(const Shape& shape, const Strides& like) {
  int order[kMaxRank], n = 0;  // axes, the innermost first
  for (int i = shape.rank(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (like[i] <= 0) return contiguous_strides(shape);
    int at = n++;
    for (; at > 0 && like[order[at - 1]] > like[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  Strides strides = like;
  Index step = 1;
  for (int k = 0; k < n; step *= std::max<Index>(shape[order[k++]], 1)) strides[order[k]] = step;
  return strides;
}

int normalize_axis(Index axis, int rank, const char* what) {
  if (axis < -rank || axis >= rank)
    fail("[", what, "] axis ", axis, " is out of range for a tensor of ", rank, " dimensions");
  return int(axis < 0 ? axis + rank : axis);
}

uint32_t axis_bit(Index axis, int rank, const char* what) {
  if (rank == 0 && (axis == 0 || axis == -1)) return 0;
  return uint32_t{1} << normalize_axis(axis, rank, what);
}

Shape broadcast(const Shape& a, const Shape& b, const char* what) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  int shift = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    Index x = longer[i + shift], y = shorter[i];
    if (x != y && x != 1 && y != 1)
      fail("[", what, "] shapes ", a, " and ", b, " do not broadcast: sizes ", x, " and ", y,
           " at axis ", i + shift, " differ and neither is 1");
    out[i + shift] = x == 1 ? y : x;
  }
  return out;
}

Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to) {
  Strides out = to;
  int shift = to.rank() - from.rank();
  for (int i = 0; i < to.rank(); ++i)
    out[i] = i < shift || (from[i - shift] == 1 && to[i] != 1) ? 0 : strides[i - shift];
  return out;
}

}  // namespace minim
