// ops/indices.h -- integer operands as plain numbers.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>

#include "minim/core/allocator.h"
#include "minim/core/op_args.h"

namespace minim {

/// The elements of an integer argument, of any dtype and strides, in row-major order.
class Indices {
 public:
  explicit Indices(const Arg& arg) : shape_(arg.shape) {
    const Strides dense = contiguous_strides(shape_);
    if (arg.dtype == DType::i64 && arg.strides == dense) {  // as they are: no longer than the op
      data_ = static_cast<const Index*>(arg.data);
      return;
    }
    values_ = std::make_unique<Scratch<Index>>(size_t(size()));
    copy(arg, {values_->data(), DType::i64, shape_, dense, true});
    data_ = values_->data();
  }
  Index size() const { return shape_.numel(); }
  Index operator[](Index i) const { return data_[i]; }
  const Index* data() const { return data_; }

  /// @throws Error naming the op, the value, its position and the valid range unless each is in [0,
  /// n) or is `also`.
  void check(const char* op, const char* what, Index n, std::optional<Index> also = {}) const {
    bool wrong = false;  // looked for without branches first
    const bool excused = also.has_value();
    const Index one = also.value_or(0), count = size();
    for (Index i = 0; i < count; ++i)
      wrong |= (uint64_t(data_[i]) >= uint64_t(n)) & !(excused & (data_[i] == one));
    for (Index i = 0; wrong && i < size(); ++i)
      if (const Index v = (*this)[i]; (v < 0 || v >= n) && v != also)
        fail("[", op, "] ", what, " ", v, " at position ", position(i), " is not in [0, ", n, ")");
  }
  /// How many are not `ignored`.
  Index counted(Index ignored) const { return size() - std::count(data_, data_ + size(), ignored); }

 private:
  /// (row, column, ...) of element i
  Dims position(Index i) const {
    Dims at = shape_;
    for (int d = shape_.rank(); d-- > 0; i /= shape_[d]) at[d] = i % shape_[d];
    return at;
  }
  Shape shape_;
  std::unique_ptr<Scratch<Index>> values_;
  const Index* data_;
};

}  // namespace minim
