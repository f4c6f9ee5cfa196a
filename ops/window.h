// ops/window.h -- what conv2d and the pools share: a window that slides over the last two axes of
// an image. A tap is an element of the window, a position is an element of the result.
#pragma once
#include <algorithm>
#include <limits>

#include "minim/core/shape.h"

namespace minim::op {

/// Of height and width; one number is both.
struct Pair {
  Index h, w;
  constexpr Pair(Index both) : h(both), w(both) {}
  constexpr Pair(Index height, Index width) : h(height), w(width) {}
};

/// The window along one axis.
struct Slide {
  Index in, kernel, stride, padding, dilation;

  static constexpr Index ceil_div(Index n, Index d) { return n > 0 ? (n + d - 1) / d : -(-n / d); }
  Index reach() const { return (kernel - 1) * dilation + 1; }
  Index out() const { return (in + 2 * padding - reach()) / stride + 1; }
  /// Where tap k at position o is in x; outside of [0, in) it is padding.
  Index at(Index o, Index k) const { return o * stride - padding + k * dilation; }

  struct Range {
    Index begin, end;
  };
  /// The taps that are inside x at position o.
  Range taps(Index o) const { return inside(at(o, 0), dilation, kernel); }
  /// The positions at which tap k is inside x.
  Range positions(Index k) const { return inside(at(0, k), stride, out()); }

 private:
  /// The i in [0, n) with start + i * step in [0, in).
  Range inside(Index start, Index step, Index n) const {
    const Index begin = std::clamp(ceil_div(-start, step), Index{0}, n);
    return {begin, std::clamp(ceil_div(in - start, step), begin, n)};
  }
};

struct Window {
  Slide h, w;
  Index taps() const { return h.kernel * w.kernel; }
  Index in() const { return h.in * w.in; }
  Index out() const { return h.out() * w.out(); }
};

/// @param x its last two axes are height and width. @throws Error naming the op where the window
/// is empty, does not move, or is larger than the padded image.
inline Window make_window(const char* op, const Shape& x, Pair kernel, Pair stride, Pair padding,
                          Pair dilation = 1) {
  auto slide = [&](const char* axis, Index in, Index k, Index s, Index p, Index d) {
    if (k < 1 || s < 1 || p < 0 || d < 1)
      fail("[", op, "] along the ", axis, " the window has kernel ", k, ", stride ", s,
           ", padding ", p, ", dilation ", d,
           "; padding must be 0 or more and the others 1 or more");
    constexpr Index kMost = std::numeric_limits<int32_t>::max();  // no product of them overflows
    if (std::max({k, s, p, d}) > kMost)
      fail("[", op, "] along the ", axis, " the window has kernel ", k, ", stride ", s,
           ", padding ", p, ", dilation ", d, "; each may be ", kMost, " at most");
    const Slide along{in, k, s, p, d};
    if (in + 2 * p < along.reach())
      fail("[", op, "] the window reaches over ", along.reach(), " elements, but the ", axis,
           " of x ", x, " with its padding is ", in + 2 * p);
    return along;
  };
  const Index height = x[x.rank() - 2], width = x[x.rank() - 1];
  return {slide("height", height, kernel.h, stride.h, padding.h, dilation.h),
          slide("width", width, kernel.w, stride.w, padding.w, dilation.w)};
}

}  // namespace minim::op
