// ops/indices.h -- integer operands as plain numbers.
#pragma once
#include <algorithm>
#include <optional>

#include "minim/core/allocator.h"
#include "minim/core/op_args.h"

namespace minim {

/// The elements of an integer argument, of any dtype and strides, in row-major order.
class Indices {
 public:
  explicit Indices(const Arg& arg) : shape_(arg.shape), values_(size_t(arg.shape.numel())) {
    copy(arg, {values_.data(), DType::i64, shape_, contiguous_strides(shape_), true});
  }
  Index size() const { return shape_.numel(); }
  Index operator[](Index i) const { return values_[size_t(i)]; }
  const Index* data() const { return values_.data(); }

  /// @throws Error naming the op, the value, its position and the valid range unless each is in [0,
  /// n) or is `also`.
  void check(const char* op, const char* what, Index n, std::optional<Index> also = {}) const {
    for (Index i = 0; i < size(); ++i)
      if (const Index v = (*this)[i]; (v < 0 || v >= n) && v != also)
        fail("[", op, "] ", what, " ", v, " at position ", position(i), " is not in [0, ", n, ")");
  }
  /// How many are not `ignored`.
  Index counted(Index ignored) const {
    return size() - std::count(values_.data(), values_.data() + size(), ignored);
  }

 private:
  /// (row, column, ...) of element i
  Dims position(Index i) const {
    Dims at = shape_;
    for (int d = shape_.rank(); d-- > 0; i /= shape_[d]) at[d] = i % shape_[d];
    return at;
  }
  Shape shape_;
  Scratch<Index> values_;
};

}  // namespace minim
