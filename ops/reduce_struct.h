// ops/reduce_struct.h -- what reductions over axes share: `axes` names them (none means all of
// them) and `keepdim` leaves each as an axis of size 1.
#pragma once
#include <optional>

#include "minim/core/row_io.h"
#include "minim/ops/contract.h"

namespace minim::op {

/// The attributes of a reduction that has no others.
struct Axes {
  Dims axes{};  ///< none: all
  bool keepdim = false;
};

/// Those of a reduction that may leave the range of its operand.
struct Accumulated {
  Dims axes{};  ///< none: all
  bool keepdim = false;
  std::optional<DType> dtype{};  ///< of the result; by default x's, and i64 for integers
};

/// Sets the result's dtype, by default x's and i64 for integers, and computes in it: x is converted
/// first. @throws Error for an integer dtype of a floating x.
inline void accumulate_in(OpArgs& args, std::optional<DType> wanted, const char* op) {
  const DType own = is_floating(args.dtype) ? args.dtype : DType::i64;
  const DType dtype = wanted.value_or(own);
  if (is_floating(own) && !is_floating(dtype))
    fail("[", op, "] of ", name_of(own), " with dtype ", name_of(dtype),
         ": convert x first, x.to(dtype)");
  args.dtype = args.out[0].dtype = dtype;
}

/// The axes as bits. @throws Error naming the op for an axis that is out of range or named twice.
inline uint32_t axis_mask(const Dims& axes, int rank, const char* op) {
  if (axes.rank() == 0) return (uint32_t{1} << rank) - 1;
  uint32_t mask = 0;
  for (Index axis : axes) {
    const uint32_t bit = axis_bit(axis, rank, op);
    if (mask & bit || (rank == 0 && axes.rank() > 1))
      fail("[", op, "] axis ", axis, " is named twice in ", axes);
    mask |= bit;
  }
  return mask;
}

inline Shape reduced_shape(const Shape& x, uint32_t mask, bool keepdim) {
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (!(mask >> i & 1))
      out.push_back(x[i]);
    else if (keepdim)
      out.push_back(1);
  }
  return out;
}

/// How many elements each result is made from.
inline Index reduced_count(const Shape& x, uint32_t mask) { return cpu::Rows(x, mask).n; }

/// @throws Error where a result would be made from no elements at all.
inline void check_not_empty(const OpArgs& args, uint32_t mask, const char* op) {
  if (reduced_count(args.in[0].shape, mask) == 0)
    fail("[", op, "] of no elements: the reduced axes of ", args.in[0].shape, " hold none");
}

/// A reduced argument, seen at x's full shape: its strides are 0 along the reduced axes.
inline Arg spread(Arg reduced, const Shape& x, uint32_t mask) {
  reduced.strides = cpu::over_rows(reduced, Along::each, cpu::Rows(x, mask));
  reduced.shape = x;
  return reduced;
}

/// The same with the reduced axes as 1: what sum_to sums into.
inline Arg keep_axes(const Arg& reduced, const Shape& x, uint32_t mask) {
  Arg out = spread(reduced, x, mask);
  out.shape = reduced_shape(x, mask, true);
  return out;
}

/// Every kind of shape and choice of axes, with the other attributes as in `attrs`.
/// @param empty also results that are made from no elements @param single and from one
template <class Op>
std::vector<Example> reduce_examples(bool empty, typename Op::Attrs attrs = {},
                                     bool single = true) {
  Examples<typename Op::Attrs> all;
  auto add = [&](Shape shape, Dims axes, bool keepdim = false) {
    attrs.axes = axes;
    attrs.keepdim = keepdim;
    all.add({shape}, attrs);
  };
  add({37}, {});
  add({3, 5}, {-1});
  add({3, 5}, {0}, true);
  add({2, 3, 4}, {});
  add({2, 3, 4}, {}, true);
  add({2, 3, 4}, {0, 2});
  add({2, 3, 4}, {1}, true);
  add({1, 7, 1}, {0, 1});
  add({0, 3}, {1});
  if (empty) add({0}, {});
  if (empty) add({0, 3}, {0}, true);
  if (!single) return all;
  add({}, {});
  add({1}, {});
  add({3, 1}, {1});
  return all;
}

}  // namespace minim::op
