// ops/pool_struct.h -- what the pools share: each image, the last two axes of x, by itself, in fp32
// (f64 for f64).
#pragma once
#include <initializer_list>

#include "minim/ops/op_struct.h"
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

/// A Pool has window(args), pool(args, window, image, oh, ow), the value at a position, and
/// spread(args, window, image, oh, ow, g, d), which adds its gradient g to that of the image; the
/// latter is given the image where backward saves x.
template <class Pool>
struct PoolOf {
  static constexpr std::array operands{Operand{"x"}};

  static void infer(OpArgs& args) {
    const Window w = Pool::window(args);
    Shape& out = args.out[0].shape = args.in[0].shape;
    out[out.rank() - 2] = w.h.out();
    out[out.rank() - 1] = w.w.out();
  }
  static void forward(OpArgs& args) {
    compute_in(args.dtype) == Compute::f64 ? forward_in<double>(args) : forward_in<float>(args);
  }
  static void backward(OpArgs& args) {
    compute_in(args.dtype) == Compute::f64 ? backward_in<double>(args) : backward_in<float>(args);
  }

 private:
  template <class F>
  static void each_position(const Window& w, F f) {
    for (Index oh = 0, o = 0; oh < w.h.out(); ++oh)
      for (Index ow = 0; ow < w.w.out(); ++ow, ++o) f(oh, ow, o);
  }
  template <class A>
  static void forward_in(OpArgs& args) {
    const Window w = Pool::window(args);
    each_image<A>({&args.in[0]}, args.out[0], [&](const A* const* from, A* y) {
      const A* x = from[0];
      each_position(w, [&](Index oh, Index ow, Index o) { y[o] = Pool::pool(args, w, x, oh, ow); });
    });
  }
  template <class A>
  static void backward_in(OpArgs& args) {
    const Window w = Pool::window(args);
    Arg x = args.in[0];
    x.defined = x.data != nullptr;
    each_image<A>({&args.grad_out[0], &x}, args.grad_in[0], [&](const A* const* from, A* d) {
      each_position(w, [&](Index oh, Index ow, Index o) {
        Pool::spread(args, w, from[1], oh, ow, from[0][o], d);
      });
    });
  }
};

}  // namespace minim::op
