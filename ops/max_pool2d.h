// The largest element of each window over the last two axes of x (..., H, W); padding never wins.
// NaN does. The gradient goes to the first largest element.
// @throws Error where the window does not fit.
#pragma once
#include <limits>

#include "minim/ops/pool_struct.h"

namespace minim::op {

struct MaxPool2d : PoolOf<MaxPool2d> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}, .infer = infer};
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
  /// The largest elements and the taps they are at; -1 where the window lies between the elements.
  template <class A>
  static void tops(const Window& w, Run run, const A* x, A* top, int32_t* tap) {
    std::fill(top, top + run.n, -std::numeric_limits<A>::infinity());
    std::fill(tap, tap + run.n, -1);
    const auto hs = w.h.taps(run.oh);
    for (Index kh = hs.begin; kh < hs.end; ++kh)
      for (Index kw = 0; kw < w.w.kernel; ++kw) {
        const A* line = x + w.h.at(run.oh, kh) * w.w.in;
        const int32_t here = int32_t(kh * w.w.kernel + kw);
        run.inside(w.w, kw, [=](Index i, Index at) {
          const A v = line[at], best = top[i];
          const bool wins = (tap[i] < 0) | (v > best) | ((v != v) & (best == best));
          top[i] = wins ? v : best;
          tap[i] = wins ? here : tap[i];
        });
      }
  }
  template <class A>
  static void pool(const OpArgs&, const Window& w, Run run, const A* x, A* y) {
    int32_t taps[Run::kMost];
    tops(w, run, x, y, taps);
  }
  template <class A>
  static void spread(const OpArgs&, const Window& w, Run run, const A* x, const A* g, A* d) {
    A top[Run::kMost];
    int32_t taps[Run::kMost];
    tops(w, run, x, top, taps);
    for (Index i = 0; i < run.n; ++i) {
      const Index kh = taps[i] / w.w.kernel, kw = taps[i] % w.w.kernel;
      if (taps[i] >= 0) d[w.h.at(run.oh, kh) * w.w.in + w.w.at(run.first + i, kw)] += g[i];
    }
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    all.add({{2, 3, 4, 6}});
    all.add({{1, 5, 5}}, {.kernel_size = 3, .stride = 1, .padding = 1});
    all.add({{2, 6, 7}},
            {.kernel_size = {2, 3}, .stride = {2, 1}, .padding = {0, 1}, .dilation = {2, 1}});
    all.add({{3, 3}}, {.kernel_size = 3});
    all.add({{0, 4, 4}});
    return all;
  }
};

}  // namespace minim::op
