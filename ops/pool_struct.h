// ops/pool_struct.h -- what the pools share: each image, the last two axes of x, by itself, in fp32
// (f64 for f64).
#pragma once
#include <initializer_list>

#include "minim/core/allocator.h"
#include "minim/core/parallel.h"
#include "minim/core/row_io.h"
#include "minim/ops/contract.h"
#include "minim/ops/window.h"

namespace minim::op {

/// The window of a pool. @throws Error where a window could lie in the padding alone.
inline Window pool_window(const char* op, const Shape& x, Pair kernel, Pair stride, Pair padding,
                          Pair dilation = 1) {
  if (x.rank() < 2) fail("[", op, "] x must be (..., height, width), not ", x);
  if (stride.h == 0 && stride.w == 0) stride = kernel;
  const Window w = make_window(op, x, kernel, stride, padding, dilation);
  if (2 * padding.h > w.h.reach() || 2 * padding.w > w.w.reach())
    fail("[", op, "] padding ", padding.h, ", ", padding.w,
         " is more than half of what the window reaches over: ", w.h.reach(), ", ", w.w.reach());
  return w;
}

/// Calls f(images in A, result image) for every image; results are stored, rounded once.
template <class A, class F>
void each_image(std::initializer_list<const Arg*> from, const Arg& to, F f) {
  auto rows_of = [](const Arg& a) {
    return cpu::Rows(a.shape, uint32_t{3} << (a.shape.rank() - 2));
  };
  const cpu::Rows results = rows_of(to);
  Index room = results.n;
  for (const Arg* arg : from) room = std::max(room, rows_of(*arg).n);
  parallel_for(
      results.count, std::max<Index>(1, 4096 / std::max<Index>(1, room)),
      [&](Index begin, Index end) {
        Scratch<A> memory((from.size() + 1) * size_t(room));
        for (Index r = begin; r < end; ++r) {
          const A* x[2] = {};
          A *out = memory.data(), *buffer = out + room;
          for (size_t k = 0; k < from.size(); ++k, buffer += room) {
            const Arg& arg = **(from.begin() + k);
            x[k] = cpu::RowIo<A>{&arg, Along::row, buffer, arg.strides}.load(rows_of(arg), r);
          }
          std::fill(out, out + results.n, A(0));
          f(x, out);
          store_run(advance(to.data, to.dtype, r * results.n), to.dtype, 1, results.n, out);
        }
      });
}

/// Positions of a row of results that are worked on together.
struct Run {
  static constexpr Index kMost = 64;
  Index oh, first, n;
  /// Calls f(i, where in the row of x) for those first + i of them where tap k lies inside x.
  template <class F>
  void inside(const Slide& s, Index k, F f) const {
    const auto all = s.positions(k);
    const Index begin = std::max(all.begin - first, Index{0}), end = std::min(all.end - first, n);
    const Index at = s.at(first, k);
    auto step = [&](Index by) {
      MINIM_IVDEP
      for (Index i = begin; i < end; ++i) f(i, at + i * by);
    };
    s.stride == 1 ? step(1) : s.stride == 2 ? step(2) : step(s.stride);
  }
};

/// A Pool has window(args), pool(args, window, run, image, y), which sets the values of the run,
/// and spread(args, window, run, image, g, d), which adds their gradients g to that of the image;
/// the latter is given the image where backward saves x.
template <class Pool>
struct PoolOf : Structured {
  static void infer(OpArgs& args) {
    const Window w = Pool::window(args);
    Shape& out = args.out[0].shape = args.in[0].shape;
    out[out.rank() - 2] = w.h.out();
    out[out.rank() - 1] = w.w.out();
  }
  static constexpr Spec spec{.operands = {{"x"}}, .infer = infer};
  static void forward(OpArgs& args) { run_floating(args, forward_in<float>, forward_in<double>); }
  static void backward(OpArgs& args) {
    run_floating(args, backward_in<float>, backward_in<double>);
  }

 private:
  template <class F>
  static void each_run(const Window& w, F f) {
    const Index width = w.w.out();
    for (Index oh = 0; oh < w.h.out(); ++oh)
      for (Index first = 0; first < width; first += Run::kMost)
        f(Run{oh, first, std::min(Run::kMost, width - first)}, oh * width + first);
  }
  template <class A>
  static void forward_in(OpArgs& args) {
    const Window w = Pool::window(args);
    each_image<A>({&args.in[0]}, args.out[0], [&](const A* const* from, A* y) {
      each_run(w, [&](Run run, Index at) { Pool::pool(args, w, run, from[0], y + at); });
    });
  }
  template <class A>
  static void backward_in(OpArgs& args) {
    const Window w = Pool::window(args);
    Arg x = args.in[0];
    x.defined = x.data != nullptr;
    each_image<A>({&args.grad_out[0], &x}, args.grad_in[0], [&](const A* const* from, A* d) {
      each_run(w, [&](Run run, Index at) { Pool::spread(args, w, run, from[1], from[0] + at, d); });
    });
  }
};

}  // namespace minim::op
