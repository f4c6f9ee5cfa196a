// ops/index_lines.h -- what gather, index_select and scatter_add share: an index chooses elements
// along one axis. Everything runs line by line along that axis: different lines meet different
// elements, so they run in parallel, and sums within a line are in the order of the axis.
#pragma once
#include <algorithm>

#include "minim/core/parallel.h"
#include "minim/ops/indices.h"
#include "minim/ops/matrix.h"

namespace minim {

class IndexLines {
 public:
  /// @param steps from element to element of `shape` within the row-major index, whose values lie
  /// in [0, n). @throws Error naming one that does not.
  IndexLines(const char* op, const Arg& index, const Shape& shape, const Strides& steps, int axis,
             Index n)
      : index_(index), steps_(steps), across_(shape), axis_(axis), length_(shape[axis]) {
    index_.check(op, "index", n);
    across_[axis] = 1;
  }
  /// to[.., j, ..] = from[.., index[.., j, ..], ..]
  template <class A>
  void gather(const Arg& from, const Arg& to) const {
    each(from, to.strides, [&]<class T>(const T* x, Index step, const Index* at, Index place) {
      Scratch<A> line(static_cast<size_t>(length_));
      for (Index j = 0; j < length_; ++j)
        line[size_t(j)] = convert_to<A>(x[at[j * steps_[axis_]] * step]);
      store_run(advance(to.data, to.dtype, place), to.dtype, to.strides[axis_], length_,
                line.data());
    });
  }
  /// sums[.., index[.., j, ..], ..] += from[.., j, ..]
  template <class A>
  void scatter_add(const Arg& from, A* sums, const Strides& strides) const {
    each(from, strides, [&]<class T>(const T* x, Index step, const Index* at, Index place) {
      for (Index j = 0; j < length_; ++j)
        sums[place + at[j * steps_[axis_]] * strides[axis_]] += convert_to<A>(x[j * step]);
    });
  }

 private:
  /// Calls f(start in `from`, its step, start of the index, start by `strides`) for every line.
  template <class F>
  void each(const Arg& from, const Strides& strides, F f) const {
    parallel_for(across_.numel(), std::max<Index>(1, 4096 / std::max<Index>(1, length_)),
                 [&](Index begin, Index end) {
                   visit(from.dtype, [&](auto tag) {
                     using T = typename decltype(tag)::type;
                     for (Index line = begin; line < end; ++line)
                       f(static_cast<const T*>(from.data) + offset_of(line, across_, from.strides),
                         from.strides[axis_], index_.data() + offset_of(line, across_, steps_),
                         offset_of(line, across_, strides));
                   });
                 });
  }
  Indices index_;
  Strides steps_;
  Shape across_;  ///< numbers the lines: the axis is 1
  int axis_;
  Index length_;
};

/// An index with an element for every element of the lines.
inline IndexLines full_lines(const char* op, const Arg& index, int axis, Index n) {
  return {op, index, index.shape, contiguous_strides(index.shape), axis, n};
}

/// The shape rule of indices with as many axes as x.
/// @throws Error unless index's sizes are at most x's, except along `free` (-1: no exception).
inline void check_index_fits(const char* op, const Shape& index, const char* what, const Shape& x,
                             int free) {
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == free || index[i] <= x[i];
  if (!fits)
    fail("[", op, "] index ", index, " does not fit ", what, " ", x, ": it needs ", x.rank(),
         " axes, each at most as long as ", what, "'s",
         free < 0 ? "" : " except axis " + std::to_string(free));
}

/// Calls add(sums, their strides) with zeros of `to`'s shape, and stores the sums, rounded once.
template <class A, class F>
void sum_apart(const Arg& to, F add) {
  Scratch<A> sums(size_t(to.shape.numel()));
  std::fill(sums.data(), sums.data() + to.shape.numel(), A(0));
  const Strides strides = contiguous_strides(to.shape);
  add(sums.data(), strides);
  copy({sums.data(), dtype_for<A>(), to.shape, strides, true}, to);
}

/// Calls f with a value of the compute type.
template <class F>
void in_compute(DType dtype, F f) {
  switch (compute_in(dtype)) {
    case Compute::f32:
      return f(float{});
    case Compute::f64:
      return f(double{});
    case Compute::i64:
      return f(int64_t{});
  }
}

}  // namespace minim
