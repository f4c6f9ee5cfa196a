#include "minim/ops/channel_norm.h"

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
  cpu::Rows rows;
  Index channels, n;  ///< n: elements in a set
  A *mean, *var;

  explicit Planes(const ChannelNorm& c)
      : norm(c),
        args(c.args),
        rows(c.args.in[0].shape, ~uint32_t{3}),
        channels(rows.shape[1]),
        n(rows.n * c.count),
        mean(static_cast<A*>(args.out[1].data)),
        var(static_cast<A*>(args.out[2].data)) {}

  Index plane(Index set, Index k) const {
    return norm.adjacent ? set * norm.count + k : set + k * channels;
  }
  /// Calls f(set, buffers of n elements) for every set, threaded.
  template <class F>
  void each(size_t buffers, F f) const {
    const Index grain = std::max<Index>(1, 4096 / std::max<Index>(1, n));
    parallel_for(norm.sets, grain, [&](Index begin, Index end) {
      Scratch<A> memory(buffers * size_t(n));
      for (Index set = begin; set < end; ++set) f(set, memory.data());
    });
  }
  /// A set's planes, one after the other.
  void load(const Arg& from, Index set, A* to) const {
    for (Index k = 0; k < norm.count; ++k, to += rows.n) {
      const A* x = cpu::RowIo<A>{&from, Along::row, to, from.strides}.load(rows, plane(set, k));
      if (x != to) std::copy(x, x + rows.n, to);
    }
  }
  void store(const Arg& to, Index p, A* values) const {
    store_run(advance(to.data, to.dtype, p * rows.n), to.dtype, 1, rows.n, values);
  }
  A rstd(Index set) const { return math::rsqrt(var[set] + A(norm.eps)); }

  void measure(Index set, const A* x) const {
    const A size = A(std::max<Index>(1, n));
    const A m = sum16<A>(n, [=](Index j) { return x[j]; }) / size;
    mean[set] = m;
    var[set] = sum16<A>(n, [=](Index j) { return (x[j] - m) * (x[j] - m); }) / size;
  }

  void forward() const {
    const PerChannel<A> weight(args.in[norm.weight], channels, A(1)),
        bias(args.in[norm.weight + 1], channels, A(0));
    if (norm.mean >= 0)
      for (int k = 0; k < 2; ++k) copy(args.in[norm.mean + k], args.out[1 + k]);
    each(1, [&](Index set, A* x) {
      load(args.in[0], set, x);
      if (norm.mean < 0) measure(set, x);
      const A shift = mean[set], scale = rstd(set);
      for (Index k = 0; k < norm.count; ++k, x += rows.n) {
        const Index p = plane(set, k);
        const A w = weight.values[size_t(p % channels)], b = bias.values[size_t(p % channels)];
        for (Index j = 0; j < rows.n; ++j) x[j] = (x[j] - shift) * scale * w + b;
        store(args.out[0], p, x);
      }
    });
  }

  void backward() const {
    const PerChannel<A> weight(args.in[norm.weight], channels, A(1));
    // Per plane, the sums of g * normalised x and of g; all other gradients are made from them.
    Scratch<A> g_normal(size_t(rows.count)), g_sum(size_t(rows.count));
    const Arg& to = args.grad_in[0];
    const bool given = norm.mean >= 0;  // then pointwise
    each(2, [&](Index set, A* x) {
      A* g = x + n;
      load(args.in[0], set, x);
      load(args.grad_out[0], set, g);
      if (!CpuLane{n}.any([=](Index j) {
            return g[j] != A(0);
          })) {  // nothing arrives, nothing leaves: see vjp_at
        for (Index k = 0; k < norm.count; ++k) {
          const Index p = plane(set, k);
          g_normal[size_t(p)] = g_sum[size_t(p)] = A(0);
          if (to.data) store(to, p, g + k * rows.n);
        }
        return;
      }
      const A shift = mean[set], scale = rstd(set);
      for (Index j = 0; j < n; ++j) x[j] = given && g[j] == A(0) ? A(0) : (x[j] - shift) * scale;
      A along = 0, level = 0;
      for (Index k = 0; k < norm.count; ++k) {
        const Index p = plane(set, k);
        const A *xs = x + k * rows.n, *gs = g + k * rows.n, w = weight.values[size_t(p % channels)];
        along +=
            w * (g_normal[size_t(p)] = sum16<A>(rows.n, [=](Index j) { return gs[j] * xs[j]; }));
        level += w * (g_sum[size_t(p)] = sum16<A>(rows.n, [=](Index j) { return gs[j]; }));
      }
      if (!to.data) return;
      along /= A(n);
      level /= A(n);
      for (Index k = 0; k < norm.count; ++k, x += rows.n, g += rows.n) {
        const Index p = plane(set, k);
        const A w = weight.values[size_t(p % channels)];
        for (Index j = 0; j < rows.n; ++j)
          x[j] = !given         ? scale * (w * g[j] - level - x[j] * along)
                 : g[j] == A(0) ? A(0)
                                : scale * (w * g[j]);
        store(to, p, x);
      }
    });
    const Shape planes{rows.shape[0], channels};
    auto reduce = [&](int operand, Scratch<A>& sums, auto slope) {
      if (operand < 0 || !args.grad_in[operand].data) return;
      for (Index p = 0; p < rows.count; ++p)
        if (sums[size_t(p)] != A(0)) sums[size_t(p)] *= slope(p % channels);
      sum_to(static_cast<const A*>(sums.data()), planes, args.grad_in[operand]);
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

Index check_channels(const OpArgs& args, std::span<const Operand> operands, int first,
                     const char* op) {
  const Shape& x = args.in[0].shape;
  if (x.rank() < 2) fail("[", op, "] x must be (N, C, ...), not ", x);
  for (int k = first; k < args.n_in; ++k)
    if (args.in[k].defined && !(args.in[k].shape == Shape{x[1]}))
      fail("[", op, "] ", operands[size_t(k)].name, " has shape ", args.in[k].shape, ", expected ",
           Shape{x[1]}, ": the channels of x ", x);
  return x[1];
}

}  // namespace minim
