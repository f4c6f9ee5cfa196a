#include "minim/ops/embedding.h"

#include "minim/core/rowwise.h"
#include "minim/ops/indices.h"
#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

constexpr Index kGrain = 1 << 14;  // elements handled by a task

template <class A>
void forward_in(OpArgs& args) {
  const Arg &weight = args.in[0], &out = args.out[0];
  const Index width = weight.shape[1];
  const Indices indices(args.in[1]);
  indices.check("embedding", "index", weight.shape[0]);
  parallel_for(
      indices.size(), std::max<Index>(1, kGrain / std::max<Index>(1, width)),
      [&](Index begin, Index end) {
        Scratch<A> buffer{size_t(width)};
        for (Index i = begin; i < end; ++i) {
          const void* row = advance(weight.data, weight.dtype, indices[i] * weight.strides[0]);
          const A* values = load_run(row, weight.dtype, weight.strides[1], width, buffer.data());
          store_run(advance(out.data, out.dtype, i * width), out.dtype, 1, width, values);
        }
      });
}

/// Positions by the row they read, in their order: those of row v are order[first[v]] to
/// order[first[v + 1] - 1].
struct Buckets {
  std::vector<Index> first, order;
  Buckets(const Indices& indices, Index rows)
      : first(size_t(rows) + 1), order(size_t(indices.size())) {
    for (Index i = 0; i < indices.size(); ++i) ++first[size_t(indices[i]) + 1];
    for (size_t v = 1; v < first.size(); ++v) first[v] += first[v - 1];
    std::vector<Index> next = first;
    for (Index i = 0; i < indices.size(); ++i) order[size_t(next[size_t(indices[i])]++)] = i;
  }
};

template <class A>
void backward_in(OpArgs& args) {
  const Arg &g = args.grad_out[0], &to = args.grad_in[0], &at = args.in[1];
  const Index rows = to.shape[0], width = to.shape[1], stride = g.strides[g.shape.rank() - 1];
  const Strides steps = leading(g.strides, 1);
  const Indices indices(at);
  const Buckets buckets(indices, rows);
  parallel_for(rows, std::max<Index>(1, kGrain / std::max<Index>(1, width)),
               [&](Index begin, Index end) {
                 Scratch<A> memory(3 * size_t(width));
                 A *total = memory.data(), *part = total + width, *buffer = part + width;
                 for (Index v = begin; v < end; ++v) {
                   std::fill(total, total + width, A(0));
                   for (Index i = buckets.first[size_t(v)]; i < buckets.first[size_t(v) + 1];) {
                     // Summed in blocks, so that the error does not grow with all positions.
                     const Index stop = std::min(i + kSumBlock, buckets.first[size_t(v) + 1]);
                     std::fill(part, part + width, A(0));
                     for (; i < stop; ++i) {
                       const Index from = offset_of(buckets.order[size_t(i)], at.shape, steps);
                       const A* values =
                           load_run(advance(g.data, g.dtype, from), g.dtype, stride, width, buffer);
                       for (Index j = 0; j < width; ++j) part[j] += values[j];
                     }
                     for (Index j = 0; j < width; ++j) total[j] += part[j];
                   }
                   store_run(advance(to.data, to.dtype, v * width), to.dtype, 1, width, total);
                 }
               });
}

}  // namespace

void Embedding::infer(OpArgs& args) {
  if (args.in[0].shape.rank() != 2)
    fail("[embedding] weight must be (rows, width), not ", args.in[0].shape);
  args.out[0].shape = args.in[1].shape;
  args.out[0].shape.push_back(args.in[0].shape[1]);
}

void Embedding::forward(OpArgs& args) { run_floating(args, forward_in<float>, forward_in<double>); }
void Embedding::backward(OpArgs& args) {
  run_floating(args, backward_in<float>, backward_in<double>);
}

std::vector<Example> Embedding::examples() {
  Examples<> all;
  all.add({{5, 3}, {4}}, {}, 5);
  all.add({{5, 3}, {2, 4}}, {}, 5);
  all.add({{3, 4}, {}}, {}, 3);   // one index
  all.add({{1, 2}, {7}}, {}, 1);  // one row for all
  all.add({{5, 3}, {0}}, {}, 5);
  return all;
}

}  // namespace minim::op
