// ops/index_lines.h -- what gather, index_select and scatter_add share: an index chooses elements
// along one axis. Different lines along that axis meet different elements, so they run in parallel,
// and sums within a line are in the order of the axis. Everything moves along the last axis: in
// runs that are a line, or an element each of lines side by side.
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
      : index_(index),
        steps_(steps),
        outer_(shape),
        axis_(axis),
        last_(shape.rank() - 1),
        runs_(axis == last_ ? 1 : shape[axis]),
        size_(shape[last_]) {
    index_.check(op, "index", n);
    outer_[axis] = outer_[last_] = 1;
  }
  /// to[.., j, ..] = from[.., index[.., j, ..], ..]
  template <class A>
  void gather(const Arg& from, const Arg& to) const {
    const Index along = from.strides[axis_], across = axis_ == last_ ? 0 : from.strides[last_];
    each(from, to.strides,
         [&]<class T>(const T* x, const Index* at, Index place, Index j, Index n) {
           place += j * to.strides[axis_];
           for (Index e = 0, m; e < n; e += m) {
             m = std::min(n - e, kPiece);
             A buffer[kPiece];
             const A* run = buffer;
             if (steps_[last_] == 0)
               run = load_run(x + at[0] * along, from.dtype, across, m, buffer);
             else
               for (Index i = 0; i < m; ++i)
                 buffer[i] =
                     convert_to<A>(x[(e + i) * across + at[(e + i) * steps_[last_]] * along]);
             store_run(advance(to.data, to.dtype, place + e * to.strides[last_]), to.dtype,
                       to.strides[last_], m, run);
           }
         });
  }
  /// sums[.., index[.., j, ..], ..] += from[.., j, ..]
  template <class A>
  void scatter_add(const Arg& from, A* sums, const Strides& strides) const {
    const Index along = strides[axis_], across = axis_ == last_ ? 0 : 1, step = from.strides[last_];
    each(from, strides, [&]<class T>(const T* x, const Index* at, Index place, Index j, Index n) {
      A buffer[kPiece], *to = sums + place;
      x += j * from.strides[axis_];
      if (steps_[last_] == 0) {
        const A* run = load_run(x, from.dtype, step, n, buffer);
        for (Index e = 0; e < n; ++e) to[at[0] * along + e] += run[e];
      } else {
        for (Index e = 0; e < n; ++e)
          to[e * across + at[e * steps_[last_]] * along] += convert_to<A>(x[e * step]);
      }
    });
  }

 private:
  static constexpr Index kPiece = 512;
  /// Calls f(start in `from`, start of the index, start by `strides`, j, n) for every run; both
  /// starts are those of j = 0. A run of lines side by side is cut into pieces.
  template <class F>
  void each(const Arg& from, const Strides& strides, F f) const {
    const Index piece = axis_ == last_ ? size_ : kPiece;
    const Index pieces = axis_ == last_ ? 1 : (size_ + kPiece - 1) / kPiece;
    parallel_for(outer_.numel() * pieces,
                 std::max<Index>(1, 4096 / std::max<Index>(1, runs_ * piece)),
                 [&](Index begin, Index end) {
                   visit(from.dtype, [&](auto tag) {
                     using T = typename decltype(tag)::type;
                     for (Index unit = begin; unit < end; ++unit) {
                       const Index outer = unit / pieces, first = unit % pieces * piece;
                       auto start = [&](const Strides& s) {
                         return offset_of(outer, outer_, s) + first * s[last_];
                       };
                       for (Index j = 0; j < runs_; ++j)
                         f(static_cast<const T*>(from.data) + start(from.strides),
                           index_.data() + start(steps_) + j * steps_[axis_], start(strides), j,
                           std::min(piece, size_ - first));
                     }
                   });
                 });
  }
  Indices index_;
  Strides steps_;
  Shape outer_;  ///< all but the axis and the last one
  int axis_, last_;
  Index runs_, size_;  ///< how many for each of the outer ones; elements in each
};

/// The axis of x; of a 0-dim x the first of the line of one element that it is here.
template <class Op>
int axis_of(const OpArgs& args) {
  const Index axis = args.attrs.as<typename Op::Attrs>().axis;
  const int rank = args.in[0].shape.rank();
  return rank == 0 ? int(axis_bit(axis, 0, Op::name)) : normalize_axis(axis, rank, Op::name);
}

inline Shape line_of(const Shape& shape) { return shape.rank() == 0 ? Shape{1} : shape; }
/// Calls f with the arguments, and 0-dim ones as lines of one element.
template <class F>
void on_lines(OpArgs& args, F f) {
  const auto each = [](OpArgs& all, auto what) {
    for (int k = 0; k < all.n_in; ++k) what(all.in[k]), what(all.grad_in[k]);
    for (int k = 0; k < all.n_out; ++k) what(all.out[k]), what(all.grad_out[k]);
  };
  bool any = false;
  each(args, [&](const Arg& a) { any = any || (a.data && a.shape.rank() == 0); });
  if (!any) return f(args);
  OpArgs lines = args;
  each(lines, [](Arg& a) {
    if (a.shape.rank() == 0) a.shape = a.strides = {1};
  });
  f(lines);
}

/// An index with an element for every element of the lines.
template <class Op>
IndexLines full_lines(const OpArgs& args) {
  const int axis = axis_of<Op>(args);
  const Shape& index = args.in[1].shape;
  return {Op::name, args.in[1], index, contiguous_strides(index), axis, args.in[0].shape[axis]};
}

/// The shape rule of indices with as many axes as x.
/// @throws Error unless index's sizes are at most x's, except along `free` (-1: no exception).
inline void check_index_fits(const char* op, const Shape& index, const char* what, const Shape& x,
                             int free) {
  const Shape given = line_of(index), held = line_of(x);
  bool fits = given.rank() == held.rank();
  for (int i = 0; fits && i < held.rank(); ++i) fits = i == free || given[i] <= held[i];
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

/// What the lines' index names in x; the gradients that meet there are added.
inline void take(const IndexLines& lines, const OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) { lines.gather<A>(args.in[0], args.out[0]); });
}
inline void give_back(const IndexLines& lines, const OpArgs& args) {
  in_compute(args.dtype, [&]<class A>(A) {
    sum_apart<A>(args.grad_in[0], [&](A* sums, const Strides& strides) {
      lines.scatter_add(args.grad_out[0], sums, strides);
    });
  });
}

}  // namespace minim
