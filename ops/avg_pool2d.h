// The mean of each window over the last two axes of x (..., H, W), summed in fp32. Padding counts
// as zeros, or not at all.
// @throws Error where the window does not fit.
#pragma once
#include "minim/ops/pool_struct.h"

namespace minim::op {

struct AvgPool2d : PoolOf<AvgPool2d> {
  static constexpr Saves saves{};
  struct Attrs {
    Pair kernel_size = 2;
    Pair stride = 0;  ///< 0: kernel_size
    Pair padding = 0;
    bool count_include_pad = true;
  };
  static Window window(const OpArgs& args) {
    const auto& a = args.attrs.as<Attrs>();
    return pool_window("avg_pool2d", args.in[0].shape, a.kernel_size, a.stride, a.padding);
  }
  /// What a window is divided by.
  static Index count(const OpArgs& args, const Window& w, Slide::Range hs, Slide::Range ws) {
    if (args.attrs.as<Attrs>().count_include_pad) return w.taps();
    return std::max<Index>(1, (hs.end - hs.begin) * (ws.end - ws.begin));
  }
  template <class A>
  static A pool(const OpArgs& args, const Window& w, const A* x, Index oh, Index ow) {
    const auto hs = w.h.taps(oh), ws = w.w.taps(ow);
    A total = 0;
    for (Index kh = hs.begin; kh < hs.end; ++kh) {
      const A* line = x + w.h.at(oh, kh) * w.w.in + w.w.at(ow, ws.begin);
      A sum = 0;
      for (Index k = 0; k < ws.end - ws.begin; ++k) sum += line[k];
      total += sum;
    }
    return total / A(count(args, w, hs, ws));
  }
  template <class A>
  static void spread(const OpArgs& args, const Window& w, const A*, Index oh, Index ow, A g, A* d) {
    const auto hs = w.h.taps(oh), ws = w.w.taps(ow);
    const A share = g / A(count(args, w, hs, ws));
    for (Index kh = hs.begin; kh < hs.end; ++kh)
      for (Index kw = ws.begin; kw < ws.end; ++kw)
        d[w.h.at(oh, kh) * w.w.in + w.w.at(ow, kw)] += share;
  }
  static std::vector<Example> examples() {
    std::vector<Example> list;
    auto add = [&](const Shape& x, Attrs attrs) { list.push_back({{x}, minim::Attrs(attrs), 0}); };
    add({2, 3, 4, 6}, {});
    add({1, 5, 5}, {.kernel_size = 3, .stride = 1, .padding = 1});
    add({1, 5, 5}, {.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false});
    add({2, 6, 7}, {.kernel_size = {2, 3}, .stride = {2, 1}, .padding = {0, 1}});
    add({3, 3}, {.kernel_size = 3});
    add({0, 4, 4}, {});
    return list;
  }
};

}  // namespace minim::op
