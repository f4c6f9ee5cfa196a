#include "minim/ops/conv2d.h"

#include "minim/core/allocator.h"
#include "minim/core/parallel.h"
#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

Window window_of(const OpArgs& args) {
  const auto& a = args.attrs.as<Conv2d::Attrs>();
  const Shape& weight = args.in[1].shape;
  return make_window("conv2d", args.in[0].shape, {weight[2], weight[3]}, a.stride, a.padding,
                     a.dilation);
}

/// Per image and group: weight (outputs, taps) times columns (taps, positions), the columns made
/// for a block of positions at a time.
struct Conv {
  static constexpr Index kColumns = 1 << 17;  ///< elements of a block of columns, about
  const Window w;
  const Index batch, groups, channels, outputs;  ///< the last two per group
  const Index taps, positions, block, blocks;

  explicit Conv(const OpArgs& args)
      : w(window_of(args)),
        batch(args.in[0].shape[0]),
        groups(args.attrs.as<Conv2d::Attrs>().groups),
        channels(args.in[1].shape[1]),
        outputs(args.in[1].shape[0] / groups),
        taps(channels * w.taps()),
        positions(w.out()),
        block(std::clamp(kColumns / std::max<Index>(1, taps) / 64 * 64, Index{64}, Index{4096})),
        blocks((positions + block - 1) / block) {}

  Index weights() const { return groups * outputs * taps; }
  /// How many blocks are worth a task of their own.
  Index grain() const {
    const Index work = 2 * outputs * taps * std::min(block, positions);
    return std::max<Index>(1, (1 << 18) / std::max<Index>(1, work));
  }

  struct Block {
    Index image, group, first, n;  ///< positions [first, first + n)
  };
  /// Block u of batch * groups * blocks.
  Block at(Index u) const {
    const Index first = u % blocks * block;
    return {u / blocks / groups, u / blocks % groups, first, std::min(block, positions - first)};
  }
  /// The first channel of x and of the result that a block is about.
  Index x_at(const Block& b) const { return (b.image * groups + b.group) * channels * w.in(); }
  Index y_at(const Block& b) const {
    return (b.image * groups + b.group) * outputs * positions + b.first;
  }

  /// Calls f(index in the columns, number, index in x's channels) for every run of a block's
  /// columns that is inside x, a row of the result at a time; x is stepped through by stride.w.
  template <class F>
  void inside(const Block& b, F f) const {
    const Index width = w.w.out(), last = b.first + b.n;
    for (Index r = 0; r < taps; ++r) {
      const Index kw = r % w.w.kernel, kh = r / w.w.kernel % w.h.kernel, channel = r / w.taps();
      const auto ws = w.w.positions(kw), hs = w.h.positions(kh);
      const Index top = std::max(hs.begin, b.first / width),
                  bottom = std::min(hs.end, (last + width - 1) / width);
      for (Index oh = top; oh < bottom; ++oh) {
        const Index begin = std::max(oh * width + ws.begin, b.first),
                    end = std::min(oh * width + ws.end, last);
        if (begin >= end) continue;
        const Index row = (channel * w.h.in + w.h.at(oh, kh)) * w.w.in;
        f(r * b.n + begin - b.first, end - begin, row + w.w.at(begin - oh * width, kw));
      }
    }
  }
  /// T is any type of the elements' size: they are only moved, and 0 is all bits 0.
  template <class T>
  void gather(const Block& b, const void* x, void* columns) const {
    T* to = static_cast<T*>(columns);
    const T* from = static_cast<const T*>(x) + x_at(b);
    std::fill(to, to + taps * b.n, T(0));
    const Index step = w.w.stride;
    inside(b, [&](Index column, Index n, Index at) {
      for (Index j = 0; j < n; ++j) to[column + j] = from[at + j * step];
    });
  }
  void gather(const Block& b, const Arg& x, void* columns) const {
    switch (size_of(x.dtype)) {
      case 2:
        return gather<uint16_t>(b, x.data, columns);
      case 4:
        return gather<uint32_t>(b, x.data, columns);
      default:
        return gather<uint64_t>(b, x.data, columns);
    }
  }
};

/// (O) seen at the result's shape.
Arg per_output(Arg bias, const Shape& y) {
  bias.strides = {0, bias.strides[0], 0, 0};
  bias.shape = y;
  return bias;
}

/// Parts of the batch have sums of their own, so that they run in parallel; as many as fit in
/// kSums elements. Within them, runs of kProductFan products are added up by themselves, as the
/// sums of a product are.
template <class A>
void weight_gradient(const Conv& c, const Dense& x, const Dense& g, const Arg& to) {
  constexpr Index kSums = 1 << 22, kParts = 16;
  const Index units = c.batch * c.blocks, all = c.weights();
  const Index parts =
      std::clamp(kSums / std::max<Index>(1, all), Index{1}, std::clamp(units, Index{1}, kParts));
  Scratch<A> sums(size_t(parts * all));
  std::fill(sums.data(), sums.data() + parts * all, A(0));
  parallel_for(parts, 1, [&](Index begin, Index end) {
    Scratch<std::byte> columns(size_t(c.taps * c.block) * size_of(x.arg.dtype));
    const Index each = c.outputs * c.taps;
    Scratch<A> run{size_t(each)};
    for (Index part = begin; part < end; ++part)
      for (Index group = 0; group < c.groups; ++group) {
        const Index first = units * part / parts, last = units * (part + 1) / parts;
        A* sum = sums.data() + part * all + group * each;
        for (Index u = first; u < last; ++u) {
          const Conv::Block b = c.at((u / c.blocks * c.groups + group) * c.blocks + u % c.blocks);
          c.gather(b, x.arg, columns.data());
          product(c.outputs, c.taps, b.n, 1, g.matrix(c.y_at(b), c.positions),
                  {columns.data(), x.arg.dtype, 1, b.n}, run.data(), dtype_for<A>(),
                  (u - first) % kProductFan > 0);
          if (u + 1 == last || (u + 1 - first) % kProductFan == 0)
            for (Index i = 0; i < each; ++i) sum[i] += run[size_t(i)];
        }
      }
  });
  Arg flat = to;
  flat.shape = {all};
  flat.strides = {1};
  sum_to(static_cast<const A*>(sums.data()), {parts, all}, flat);
}

template <class A>
void input_gradient(const Conv& c, const Dense& weight, const Dense& g, const Arg& to) {
  const Index size = c.channels * c.w.in(), step = c.w.w.stride;
  parallel_for(c.batch * c.groups, 1, [&](Index begin, Index end) {
    Scratch<A> columns(size_t(c.taps * c.block)), sums(static_cast<size_t>(size));
    for (Index u = begin; u < end; ++u) {
      std::fill(sums.data(), sums.data() + size, A(0));
      for (Index i = 0; i < c.blocks; ++i) {
        const Conv::Block b = c.at(u * c.blocks + i);
        product(c.taps, b.n, c.outputs, 1,
                transposed(weight.matrix(b.group * c.outputs * c.taps, c.taps)),
                g.matrix(c.y_at(b), c.positions), columns.data(), dtype_for<A>());
        c.inside(b, [&](Index column, Index n, Index at) {
          for (Index j = 0; j < n; ++j) sums[size_t(at + j * step)] += columns[size_t(column + j)];
        });
      }
      store_run(advance(to.data, to.dtype, u * size), to.dtype, 1, size, sums.data());
    }
  });
}

template <class A>
void backward_in(OpArgs& args) {
  const Conv c(args);
  const Dense x(args.in[0]), weight(args.in[1]), g(args.grad_out[0]);
  if (args.grad_in[0].data) input_gradient<A>(c, weight, g, args.grad_in[0]);
  if (args.grad_in[1].data) weight_gradient<A>(c, x, g, args.grad_in[1]);
  if (Arg bias = args.grad_in[2]; bias.data) {
    bias.shape = {bias.shape[0], 1, 1};
    bias.strides = {1, 0, 0};
    sum_to(args.grad_out[0], bias);
  }
}

}  // namespace

void Conv2d::infer(OpArgs& args) {
  const Shape &x = args.in[0].shape, &weight = args.in[1].shape;
  for (int k = 0; k < args.n_in; ++k)
    if (args.in[k].defined && !is_floating(args.in[k].dtype))
      fail("[conv2d] ", spec.operands[size_t(k)].name, " is ", name_of(args.in[k].dtype),
           args.in[k].shape, "; it takes floating operands: convert with .to()");
  const Index groups = args.attrs.as<Attrs>().groups;
  if (x.rank() != 4 || weight.rank() != 4)
    fail("[conv2d] x must be (N, C, H, W) and weight (O, C / groups, KH, KW), not ", x, " and ",
         weight);
  Index channels;
  if (groups < 1 || groups > std::max<Index>(1, weight[0]) || weight[0] % groups != 0 ||
      __builtin_mul_overflow(weight[1], groups, &channels) || x[1] != channels)
    fail("[conv2d] weight ", weight, " does not fit x ", x, " in ", groups,
         " groups: its first size must be a multiple of groups, its second the channels of x "
         "divided by groups");
  if (args.in[2].defined && !(args.in[2].shape == Shape{weight[0]}))
    fail("[conv2d] bias ", args.in[2].shape, " does not fit weight ", weight, ": it must be ",
         Shape{weight[0]});
  const Window w = window_of(args);
  args.out[0].shape = {x[0], weight[0], w.h.out(), w.w.out()};
}

void Conv2d::forward(OpArgs& args) {
  const Conv c(args);
  const Dense x(args.in[0]), weight(args.in[1]);
  const Arg &bias = args.in[2], &y = args.out[0];
  if (bias.defined) copy(per_output(bias, y.shape), y);  // exact: of one dtype
  parallel_for(c.batch * c.groups * c.blocks, c.grain(), [&](Index begin, Index end) {
    Scratch<std::byte> columns(size_t(c.taps * c.block) * size_of(x.arg.dtype));
    for (Index u = begin; u < end; ++u) {
      const Conv::Block b = c.at(u);
      c.gather(b, x.arg, columns.data());
      GemmArgs product;
      product.m = c.outputs, product.n = b.n, product.k = c.taps;
      product.a = weight.matrix(b.group * c.outputs * c.taps, c.taps);
      product.b = {columns.data(), x.arg.dtype, b.n, 1};
      product.c = advance(y.data, y.dtype, c.y_at(b));
      product.c_dtype = y.dtype, product.c_row_stride = c.positions;
      product.accumulate = bias.defined;
      gemm(product);
    }
  });
}

void Conv2d::backward(OpArgs& args) { run_floating(args, backward_in<float>, backward_in<double>); }

std::vector<Example> Conv2d::examples() {
  Examples<Attrs> all;
  all.add({{2, 2, 4, 5}, {3, 2, 3, 3}, {3}}, {.padding = 1});
  all.add({{1, 2, 5, 4}, {2, 2, 2, 3}, all.none}, {.stride = {2, 1}});
  all.add({{1, 4, 3, 4}, {4, 2, 2, 2}, {4}}, {.stride = 2, .padding = 1, .groups = 2});
  all.add({{2, 3, 3, 3}, {3, 1, 2, 2}, all.none},
          {.padding = {1, 0}, .dilation = {1, 2}, .groups = 3});
  all.add({{2, 3, 2, 2}, {2, 3, 1, 1}, {2}});
  all.add({{1, 1, 3, 3}, {1, 1, 3, 3}, {1}});
  all.add({{0, 2, 3, 3}, {2, 2, 2, 2}, {2}});  // no image
  return all;
}

}  // namespace minim::op
