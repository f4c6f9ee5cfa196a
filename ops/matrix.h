// ops/matrix.h -- arguments as the matrices of products: by their strides, without copies.
#pragma once
#include <memory>
#include <optional>
#include <utility>

#include "minim/core/allocator.h"
#include "minim/core/convert.h"
#include "minim/core/gemm.h"
#include "minim/core/op_args.h"

namespace minim {

/// The first rank - last of some sizes or strides.
inline Dims leading(const Dims& d, int last) {
  return Dims(std::span(d.begin(), size_t(d.rank() - last)));
}

/// Offset, in elements, of element i in row-major order.
inline Index offset_of(Index i, const Shape& shape, const Strides& strides) {
  Index at = 0;
  for (int d = shape.rank(); d-- > 0; i /= shape[d]) at += i % shape[d] * strides[d];
  return at;
}

inline MatrixRef transposed(MatrixRef m) {
  std::swap(m.row_stride, m.col_stride);
  return m;
}

/// c = alpha a b (+ c where `add`), whose rows lie one after the other.
inline void product(Index m, Index n, Index k, double alpha, const MatrixRef& a, const MatrixRef& b,
                    void* c, DType c_dtype, bool add = false) {
  GemmArgs g{m, n, k, a, b, c, c_dtype, n};
  g.alpha = alpha, g.accumulate = add;
  gemm(g);
}

/// The last two axes of an argument of rank 2 or more, over a batch of which its other axes are
/// part or are broadcast to.
class Matrices {
 public:
  Matrices(const Arg& arg, const Shape& batch)
      : arg_(arg),
        batch_(batch),
        steps_(broadcast_strides(leading(arg.shape, 2), leading(arg.strides, 2), batch)) {}
  void* data(Index b) const { return advance(arg_.data, arg_.dtype, offset_of(b, batch_, steps_)); }
  MatrixRef operator[](Index b) const { return {data(b), arg_.dtype, row_stride(), stride(1)}; }
  Index row_stride() const { return stride(2); }
  DType dtype() const { return arg_.dtype; }

 private:
  Index stride(int from_the_end) const { return arg_.strides[arg_.strides.rank() - from_the_end]; }
  Arg arg_;
  Shape batch_;
  Strides steps_;
};

/// Makes (..., n) a matrix (rows, n) where one stride steps through all rows; else leaves it and
/// says false.
inline bool join_rows(Arg& x) {
  const bool empty = x.shape.numel() == 0;  // then strides are of no account
  int last = x.shape.rank() - 1;
  Index rows = 1, step = 0;
  for (int d = last; d-- > 0;) {
    if (x.shape[d] == 1) continue;
    if (rows == 1) step = x.strides[d];
    if (!empty && x.strides[d] != step * rows) return false;
    rows *= x.shape[d];
  }
  x.strides = {step, x.strides[last]};
  x.shape = {rows, x.shape[last]};
  return true;
}

/// An argument, if it is given, as dense elements; copied only where it is not.
struct Dense {
  Arg arg;
  std::unique_ptr<Scratch<std::byte>> copied;

  explicit Dense(const Arg& x) : arg(x) {
    arg.strides = contiguous_strides(x.shape);
    if (x.strides == arg.strides || !x.data) return;
    copied = std::make_unique<Scratch<std::byte>>(size_t(x.shape.numel()) * size_of(x.dtype));
    arg.data = copied->data();
    copy(x, arg);
  }
  /// The matrix from an element on.
  MatrixRef matrix(Index at, Index row_stride) const {
    return {advance(arg.data, arg.dtype, at), arg.dtype, row_stride, 1};
  }
};

/// (..., n) as one matrix; copied only where no single stride steps through its rows.
struct Rows {
  Arg arg;
  std::optional<Dense> dense;

  explicit Rows(const Arg& x) : arg(x) {
    if (join_rows(arg)) return;
    arg = dense.emplace(x).arg;
    join_rows(arg);
  }
  MatrixRef matrix() const { return {arg.data, arg.dtype, arg.strides[0], arg.strides[1]}; }
  Index count() const { return arg.shape[0]; }
};

}  // namespace minim
