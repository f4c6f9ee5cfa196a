#include "minim/ops/channel_norm.h"

#include "minim/core/rowwise.h"

namespace minim {
namespace {

/// A (C) argument as dense values; `otherwise` where it was not given.
template <class A>
struct PerChannel {
  Scratch<A> values;
  PerChannel(const Arg& arg, Index channels, A otherwise) : values(size_t(channels)) {
    const Arg to{values.data(), dtype_for<A>(), {channels}, {1}, true};
    if (arg.defined)
      copy(arg, to);
    else
      std::fill(values.data(), values.data() + channels, otherwise);
  }
};

template <class A>
struct Planes {
  const ChannelNorm& norm;
  const OpArgs& args;
  using Io = cpu::RowIo<A>;
  cpu::Rows rows, sets;  ///< planes; sets of planes that are not adjacent
  cpu::Together together;
  Index channels, n;  ///< n: elements in a set
  A *mean, *var;

  explicit Planes(const ChannelNorm& c)
      : norm(c),
        args(c.args),
        rows(c.args.in[0].shape, ~uint32_t{3}),
        sets(c.args.in[0].shape, ~uint32_t{2}),
        channels(rows.shape[1]),
        n(rows.n * c.count),
        mean(static_cast<A*>(args.out[1].data)),
        var(static_cast<A*>(args.out[2].data)) {
    if (!norm.adjacent) together = cpu::Together(sets);
  }

  Index plane(Index set, Index k) const {
    return norm.adjacent ? set * norm.count + k : set + k * channels;
  }
  Index channel(Index set, Index k) const { return norm.adjacent ? plane(set, k) % channels : set; }
  /// Calls f(set, what loads or stores each of `all`) for every set, threaded.
  template <class F>
  void each(std::initializer_list<const Arg*> all, F f) const {
    const Index room = together.most * ((n + 16) / 16 * 16);
    parallel_for(norm.sets, std::max(together.most, 4096 / std::max<Index>(1, n)),
                 [&](Index begin, Index end) {
                   Scratch<A> memory(all.size() * size_t(room));
                   std::vector<Io> io;
                   for (const Arg* arg : all)
                     io.push_back({.arg = arg,
                                   .buffer = memory.data() + Index(io.size()) * room,
                                   .strides = arg->strides,
                                   .together = together.of(begin, end)});
                   for (Index set = begin; set < end; ++set) f(set, io);
                 });
  }
  /// A set's planes, one after the other.
  const A* load(const Io& io, Index set) const {
    if (!norm.adjacent) return io.load(sets, set);
    Io one = io;
    for (Index k = 0; k < norm.count; ++k, one.buffer += rows.n)
      if (const A* x = one.load(rows, plane(set, k)); x != one.buffer)
        std::copy(x, x + rows.n, one.buffer);
    return io.buffer;
  }
  A* target(const Io& io, Index set) const {
    return norm.adjacent || !io.arg->data ? io.buffer : io.target(sets, set);
  }
  void store(const Io& io, Index set) const {
    if (!norm.adjacent) return io.store(sets, set);
    store_run(advance(io.arg->data, io.arg->dtype, set * n), io.arg->dtype, 1, n, io.buffer);
  }
  A rstd(Index set) const { return math::rsqrt(var[set] + A(norm.eps)); }

  template <class W>
  struct Statistics {
    W mean, var, rstd;
  };
  template <class W>
  Statistics<W> with_rstd(W m, W v) const {
    return {m, v, math::rsqrt(v + W(norm.eps))};
  }
  template <class W>
  Statistics<W> measure(const A* x) const {
    const W size = W(A(std::max<Index>(1, n)));
    const W m = sum16<W>(n, [=](Index j) { return W(x[j]); }) / size;
    return with_rstd(m, sum16<W>(n, [=](Index j) { return (W(x[j]) - m) * (W(x[j]) - m); }) / size);
  }
  /// Whether a set with mean[set] and var[set] can be normalised in A (core/wide.h).
  bool safe(Index set) const {
    return suffices<A>(var[set] + A(norm.eps)) && math::fabs(mean[set]) <= kSafe<A>;
  }
  /// What sets that cannot be are normalised with.
  Statistics<Wider<A>> wide(Index set, const A* x) const {
    using W = Wider<A>;
    return norm.mean < 0 ? measure<W>(x) : with_rstd(W(mean[set]), W(var[set]));
  }

  void forward() const {
    const PerChannel<A> weight(args.in[norm.weight], channels, A(1)),
        bias(args.in[norm.weight + 1], channels, A(0));
    if (norm.mean >= 0)
      for (int k = 0; k < 2; ++k) copy(args.in[norm.mean + k], args.out[1 + k]);
    each({&args.in[0], &args.out[0]}, [&](Index set, const auto& io) {
      const A* x = load(io[0], set);
      A* y = target(io[1], set);
      if (norm.mean < 0) {
        const auto s = measure<A>(x);
        mean[set] = s.mean, var[set] = s.var;
      }
      auto normalise = [&]<class W>(W shift, W scale) {
        for (Index k = 0, j = 0; j < n; ++k) {
          const Index c = channel(set, k), end = norm.adjacent ? j + rows.n : n;
          const W w = W(weight.values[size_t(c)]), b = W(bias.values[size_t(c)]);
          for (; j < end; ++j) y[j] = A((W(x[j]) - shift) * scale * w + b);
        }
      };
      const bool plain = safe(set);
      if (plain) normalise(mean[set], rstd(set));
      // With statistics that are not x's own a value may be anything, and its weight small.
      const bool grows = plain && norm.mean >= 0 && rstd(set) > A(1);
      if (!plain || (grows && CpuLane{n}.any([=](Index j) { return !is_finite(y[j]); }))) {
        const auto s = wide(set, x);
        if (norm.mean < 0) mean[set] = A(s.mean), var[set] = A(s.var);
        normalise(s.mean, s.rstd);
      }
      store(io[1], set);
    });
  }

  void backward() const {
    const PerChannel<A> weight(args.in[norm.weight], channels, A(1));
    // Per plane of each set, the sums of g * normalised x and of g; all other gradients are made
    // from them.
    Scratch<A> g_normal(size_t(rows.count)), g_sum(size_t(rows.count));
    const Arg& to = args.grad_in[0];
    const bool given = norm.mean >= 0;  // then pointwise, and normalised values are of any size
    Scratch<Wider<A>> wide_g_normal(given ? size_t(rows.count) : 0);
    each({&args.in[0], &args.grad_out[0], &to}, [&](Index set, const auto& io) {
      const A *x = load(io[0], set), *g = load(io[1], set);
      A* d = target(io[2], set);
      // Where nothing arrives nothing leaves: see vjp_at.
      if (!CpuLane{n}.any([=](Index j) { return g[j] != A(0); })) {
        std::fill_n(&g_normal[size_t(set * norm.count)], norm.count, A(0));
        std::fill_n(&g_sum[size_t(set * norm.count)], norm.count, A(0));
        if (given) std::fill_n(&wide_g_normal[size_t(set * norm.count)], norm.count, Wider<A>(0));
        std::fill_n(d, n, A(0));
        if (to.data) store(io[2], set);
        return;
      }
      auto run = [&]<class W>(W shift, W scale) {
        for (Index j = 0; j < n; ++j) d[j] = A((W(x[j]) - shift) * scale);
        W along = W(0), level = W(0);
        for (Index k = 0; k < norm.count; ++k) {
          const size_t p = size_t(set * norm.count + k);
          const A *xs = d + k * rows.n, *gs = g + k * rows.n, *from = x + k * rows.n;
          const W w = W(weight.values[size_t(channel(set, k))]);
          auto sum = [&](auto f) { return rows.n == 1 ? W(0) + f(0) : sum16<W>(rows.n, f); };
          W own = sum([=](Index j) { return W(gs[j]) * W(xs[j]); });
          const W g_own = sum([=](Index j) { return W(gs[j]); });
          if (given && !std::is_same_v<W, A>)
            own = sum([=](Index j) {
              return gs[j] == A(0) ? W(0) : W(gs[j]) * ((W(from[j]) - shift) * scale);
            });
          g_normal[p] = A(own), g_sum[p] = A(g_own);
          if (given) wide_g_normal[p] = Wider<A>(own);
          if (given && std::is_same_v<W, A> && !is_finite(own)) return false;
          along += w * own;
          level += w * g_own;
        }
        if (!to.data) return true;
        along /= W(A(n));
        level /= W(A(n));
        if (!given && !suffices<A>(math::fabs(along) + math::fabs(level))) return false;
        for (Index k = 0, j = 0; j < n; ++k) {
          const Index end = norm.adjacent ? j + rows.n : n;
          const W w = W(weight.values[size_t(channel(set, k))]);
          for (; j < end; ++j)
            d[j] = !given         ? A(scale * (w * W(g[j]) - level - W(d[j]) * along))
                   : g[j] == A(0) ? A(0)
                                  : A(scale * (w * W(g[j])));
        }
        return true;
      };
      if (!safe(set) || !run(mean[set], rstd(set))) {
        const auto s = wide(set, x);
        run(s.mean, s.rstd);
      }
      if (to.data) store(io[2], set);
    });
    auto reduce = [&](int operand, const Scratch<A>& sums, auto slope) {
      if (operand < 0 || !args.grad_in[operand].data) return;
      if (norm.adjacent)
        return sum_to(static_cast<const A*>(sums.data()), {rows.shape[0], channels},
                      args.grad_in[operand]);
      Scratch<A> total{size_t(channels)};
      for (Index c = 0; c < channels; ++c) {
        const A *own = sums.data() + c * norm.count, by = slope(c);
        total[size_t(c)] =
            sum16<A>(norm.count, [=](Index k) { return own[k] == A(0) ? A(0) : own[k] * by; });
        if (operand != norm.mean + 1 || is_finite(total[size_t(c)])) continue;
        using W = Wider<A>;
        const W* wide = wide_g_normal.data() + c * norm.count;
        total[size_t(c)] = A(sum16<W>(norm.count, [=](Index k) { return wide[k] * W(by); }));
      }
      copy({total.data(), dtype_for<A>(), {channels}, {1}, true}, args.grad_in[operand]);
    };
    auto one = [](Index) { return A(1); };
    reduce(norm.weight, g_normal, one);
    reduce(norm.weight + 1, g_sum, one);
    if (!given) return;
    reduce(norm.mean, g_sum, [&](Index c) { return -weight.values[size_t(c)] * rstd(c); });
    reduce(norm.mean + 1, g_normal,
           [&](Index c) { return A(-0.5) * weight.values[size_t(c)] * rstd(c) * rstd(c); });
  }
};

}  // namespace

void ChannelNorm::forward() const {
  compute_in(args.dtype) == Compute::f64 ? Planes<double>(*this).forward()
                                         : Planes<float>(*this).forward();
}

void ChannelNorm::backward() const {
  compute_in(args.dtype) == Compute::f64 ? Planes<double>(*this).backward()
                                         : Planes<float>(*this).backward();
}

Index check_channels(const OpArgs& args, std::span<const Operand> operands, const char* op) {
  const Shape& x = args.in[0].shape;
  if (x.rank() < 2) fail("[", op, "] x must be (N, C, ...), not ", x);
  for (int k = 1; k < args.n_in; ++k)
    if (args.in[k].defined && !(args.in[k].shape == Shape{x[1]}))
      fail("[", op, "] ", operands[size_t(k)].name, " has shape ", args.in[k].shape, ", expected ",
           Shape{x[1]}, ": the channels of x ", x);
  return x[1];
}

}  // namespace minim
