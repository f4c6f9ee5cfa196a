#include "minim/ops/rope.h"

#include <cmath>

#include "minim/core/parallel.h"
#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

/// Turns every pair by its angle; those of the gradient back.
template <class A, bool backward>
void turn(OpArgs& args) {
  const Arg &from = backward ? args.grad_out[0] : args.in[0],
            &to = backward ? args.grad_in[0] : args.out[0];
  const double sign = backward ? -1 : 1;
  const auto& attrs = args.attrs.as<Rope::Attrs>();
  const int rank = to.shape.rank();
  const Index length = to.shape[rank - 2], width = to.shape[rank - 1], half = width / 2;
  const Shape across = leading(to.shape, 1);
  const Strides steps = leading(from.strides, 1), to_steps = leading(to.strides, 1);
  Scratch<double> frequency{size_t(half)};
  for (Index i = 0; i < half; ++i)
    frequency[size_t(i)] = std::pow(attrs.theta, -2.0 * double(i) / double(width));
  Scratch<A> table(size_t(length * width));  // of each position: cosines, then sines
  parallel_for(length, 64, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t)
      for (Index i = 0; i < half; ++i) {
        const double angle = (double(attrs.offset) + double(t)) * frequency[size_t(i)];
        table[size_t(t * width + i)] = A(std::cos(angle));
        table[size_t(t * width + half + i)] = A(sign * std::sin(angle));
      }
  });
  parallel_for(across.numel(), std::max<Index>(1, 4096 / std::max<Index>(1, width)),
               [&](Index begin, Index end) {
                 Scratch<A> memory(2 * size_t(width));
                 A* y = memory.data() + width;
                 for (Index r = begin; r < end; ++r) {
                   const A *cosine = table.data() + r % length * width, *sine = cosine + half;
                   const void* row = advance(from.data, from.dtype, offset_of(r, across, steps));
                   const A* x =
                       load_run(row, from.dtype, from.strides[rank - 1], width, memory.data());
                   for (Index i = 0; i < half; ++i) {
                     y[i] = x[i] * cosine[i] - x[i + half] * sine[i];
                     y[i + half] = x[i + half] * cosine[i] + x[i] * sine[i];
                   }
                   store_run(advance(to.data, to.dtype, offset_of(r, across, to_steps)), to.dtype,
                             to.strides[rank - 1], width, y);
                 }
               });
}

}  // namespace

void Rope::infer(OpArgs& args) {
  const Shape& x = args.in[0].shape;
  if (x.rank() < 2 || x[x.rank() - 1] % 2 != 0)
    fail("[rope] x ", x, " must be (..., positions, width) with an even width");
  if (const double theta = args.attrs.as<Attrs>().theta; !(theta > 0))
    fail("[rope] theta must be positive, not ", theta);
  args.out[0].shape = x;
  args.out[0].strides = dense_strides(x, args.in[0].strides);
}

void Rope::forward(OpArgs& args) { run_floating(args, turn<float, false>, turn<double, false>); }
void Rope::backward(OpArgs& args) { run_floating(args, turn<float, true>, turn<double, true>); }

std::vector<Example> Rope::examples() {
  Examples<Attrs> all;
  all.add({{3, 4}});
  all.add({{1, 2}}, {.theta = 10000, .offset = 5});
  all.add({{2, 3, 5, 6}}, {.theta = 500000, .offset = 100});
  all.add({{2, 0, 4}});
  all.add({{3, 0}});
  return all;
}

}  // namespace minim::op
