// The largest element of each window over the last two axes of x (..., H, W); padding never wins.
// NaN does. The gradient goes to the first largest element.
// @throws Error where the window does not fit.
#pragma once
#include <limits>

#include "minim/ops/pool_struct.h"

namespace minim::op {

struct MaxPool2d : PoolOf<MaxPool2d> {
  static constexpr Saves saves{.inputs = 0b1};
  struct Attrs {
    Pair kernel_size = 2;
    Pair stride = 0;  ///< 0: kernel_size
    Pair padding = 0, dilation = 1;
  };
  static Window window(const OpArgs& args) {
    const auto& a = args.attrs.as<Attrs>();
    return pool_window("max_pool2d", args.in[0].shape, a.kernel_size, a.stride, a.padding,
                       a.dilation);
  }
  /// Where the largest element is; -1 where the window lies between the elements.
  template <class A>
  static Index top(const Window& w, const A* x, Index oh, Index ow) {
    const auto hs = w.h.taps(oh), ws = w.w.taps(ow);
    Index best = -1;
    for (Index kh = hs.begin; kh < hs.end; ++kh)
      for (Index kw = ws.begin; kw < ws.end; ++kw) {
        const Index i = w.h.at(oh, kh) * w.w.in + w.w.at(ow, kw);
        if (best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best])) best = i;
      }
    return best;
  }
  template <class A>
  static A pool(const OpArgs&, const Window& w, const A* x, Index oh, Index ow) {
    const Index i = top(w, x, oh, ow);
    return i < 0 ? -std::numeric_limits<A>::infinity() : x[i];
  }
  template <class A>
  static void spread(const OpArgs&, const Window& w, const A* x, Index oh, Index ow, A g, A* d) {
    if (const Index i = top(w, x, oh, ow); i >= 0) d[i] += g;
  }
  static std::vector<Example> examples() {
    std::vector<Example> list;
    auto add = [&](const Shape& x, Attrs attrs) { list.push_back({{x}, minim::Attrs(attrs), 0}); };
    add({2, 3, 4, 6}, {});
    add({1, 5, 5}, {.kernel_size = 3, .stride = 1, .padding = 1});
    add({2, 6, 7},
        {.kernel_size = {2, 3}, .stride = {2, 1}, .padding = {0, 1}, .dilation = {2, 1}});
    add({3, 3}, {.kernel_size = 3});
    add({0, 4, 4}, {});
    return list;
  }
};

}  // namespace minim::op
