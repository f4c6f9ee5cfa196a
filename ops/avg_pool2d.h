// The mean of each window over the last two axes of x (..., H, W), summed in fp32. Padding counts
// as zeros, or not at all.
// @throws Error where the window does not fit.
#pragma once
#include "minim/ops/pool_struct.h"

namespace minim::op {

struct AvgPool2d : PoolOf<AvgPool2d> {
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
  /// What each window is divided by.
  template <class A>
  static void counts(const OpArgs& args, const Window& w, Run run, A* n) {
    std::fill(n, n + run.n, A(w.taps()));
    if (args.attrs.as<Attrs>().count_include_pad) return;
    const auto hs = w.h.taps(run.oh);
    for (Index i = 0; i < run.n; ++i) {
      const auto ws = w.w.taps(run.first + i);
      n[i] = A(std::max<Index>(1, (hs.end - hs.begin) * (ws.end - ws.begin)));
    }
  }
  template <class A>
  static void pool(const OpArgs& args, const Window& w, Run run, const A* x, A* y) {
    A n[Run::kMost], total[Run::kMost] = {};
    counts(args, w, run, n);
    const auto hs = w.h.taps(run.oh);
    for (Index kh = hs.begin; kh < hs.end; ++kh) {
      const A* line = x + w.h.at(run.oh, kh) * w.w.in;
      A sum[Run::kMost] = {};
      for (Index kw = 0; kw < w.w.kernel; ++kw)
        run.inside(w.w, kw, [&](Index i, Index at) { sum[i] += line[at]; });
      for (Index i = 0; i < run.n; ++i) total[i] += sum[i];
    }
    for (Index i = 0; i < run.n; ++i) y[i] = total[i] / n[i];
    for (Index i = 0; i < run.n; ++i)
      if (!is_finite(y[i])) y[i] = A(sum_at(w, run.oh, run.first + i, x) / Wider<A>(n[i]));
  }
  /// The sum of a window that has left A.
  template <class A>
  static Wider<A> sum_at(const Window& w, Index oh, Index ow, const A* x) {
    const auto hs = w.h.taps(oh), ws = w.w.taps(ow);
    Wider<A> sum = 0;
    for (Index kh = hs.begin; kh < hs.end; ++kh)
      for (Index kw = ws.begin; kw < ws.end; ++kw)
        sum += Wider<A>(x[w.h.at(oh, kh) * w.w.in + w.w.at(ow, kw)]);
    return sum;
  }
  template <class A>
  static void spread(const OpArgs& args, const Window& w, Run run, const A*, const A* g, A* d) {
    A share[Run::kMost];
    counts(args, w, run, share);
    for (Index i = 0; i < run.n; ++i) share[i] = g[i] / share[i];
    const auto hs = w.h.taps(run.oh);
    for (Index kh = hs.begin; kh < hs.end; ++kh) {
      A* line = d + w.h.at(run.oh, kh) * w.w.in;
      for (Index kw = w.w.kernel; kw-- > 0;)  // an element gets its shares in the positions' order
        run.inside(w.w, kw, [&](Index i, Index at) { line[at] += share[i]; });
    }
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    all.add({{2, 3, 4, 6}});
    all.add({{1, 5, 5}}, {.kernel_size = 3, .stride = 1, .padding = 1});
    all.add({{1, 5, 5}}, {.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false});
    all.add({{2, 6, 7}}, {.kernel_size = {2, 3}, .stride = {2, 1}, .padding = {0, 1}});
    all.add({{3, 3}}, {.kernel_size = 3});
    all.add({{0, 4, 4}});
    return all;
  }
};

}  // namespace minim::op
