// Every row of the op table on large operands, which are grown from the row's own examples.
#include <algorithm>
#include <cstring>
#include <optional>

#include "minim/autograd/node.h"
#include "minim/ops/call.h"
#include "minim/testing/op_trial.h"
#include "minim/tools/bench.h"

namespace minim::bench {
namespace {

constexpr Index kElements = 6'000'000;  // of all operands and results: 24 MB of f32

struct Axis {
  size_t operand;
  int axis;
  bool operator==(const Axis&) const = default;
};
using Axes = std::vector<Axis>;
using test::absent;

/// Elements of the results; nothing where the shapes do not fit.
std::optional<Index> elements(const OpRow& row, const Example& example) try {
  OpArgs args;
  args.n_in = int(example.shapes.size());
  args.n_out = int(row.outputs.size());
  args.attrs = example.attrs;
  for (size_t k = 0; k < example.shapes.size(); ++k)
    if (!absent(example.shapes[k]))
      args.in[k] = {.shape = example.shapes[k],
                    .strides = contiguous_strides(example.shapes[k]),
                    .defined = true};
  row.infer(args);
  Index n = 0;
  for (int k = 0; k < args.n_out; ++k) n += args.out[k].shape.numel();
  return n;
} catch (const Error&) {
  return {};
}

void grow(Example& example, const Axes& axes) {
  for (const auto& [k, i] : axes) example.shapes[k][i] *= 2;
}

/// Sets of axes with `one` that may have to grow together, of those that are `free`: it alone, the
/// same axis of other operands counted from the left or the right, another one, or all of its size.
std::vector<Axes> candidates(const Example& first, const Axis& one, const Axes& free) {
  const auto size = [&](const Axis& a) { return first.shapes[a.operand][a.axis]; };
  const auto from_right = [&](const Axis& a) { return first.shapes[a.operand].rank() - a.axis; };
  std::vector<Axes> sets(4, {one});
  for (const Axis& other : free) {
    if (size(other) != size(one) || other == one) continue;
    const bool foreign = other.operand != one.operand;
    if (foreign && other.axis == one.axis) sets[1].push_back(other);
    if (foreign && from_right(other) == from_right(one)) sets[2].push_back(other);
    sets[3].push_back(other);
    if (foreign) sets.push_back({one, other});
  }
  return sets;
}

/// What can be doubled while the shapes still fit. An axis stays as it is where the result would
/// shrink, as with a larger convolution kernel.
std::vector<Axes> growing_axes(const OpRow& row, const Example& first) {
  Axes free;
  for (size_t k = 0; k < first.shapes.size(); ++k)
    for (int i = 0; i < first.shapes[k].rank(); ++i)
      if (first.shapes[k][i] > 1) free.push_back({k, i});
  std::vector<Axes> found;
  Example grown = first;
  for (const Axis& axis : Axes(free)) {
    if (!std::ranges::count(free, axis)) continue;
    for (const Axes& together : candidates(first, axis, free)) {
      Example doubled = grown;
      grow(doubled, together);
      if (elements(row, doubled).value_or(-1) < elements(row, grown)) continue;
      grown = doubled;
      found.push_back(together);
      std::erase_if(free, [&](const Axis& a) { return std::ranges::count(together, a); });
      break;
    }
  }
  return found;
}

Index total(const OpRow& row, const Example& example) {
  Index n = elements(row, example).value_or(kElements);
  for (const Shape& s : example.shapes) n += absent(s) ? 0 : s.numel();
  return n;
}

/// The first example with rows and columns, doubled along one axis after the other.
Example large_example(const OpRow& row) {
  const std::vector<Example> all = row.examples();
  const auto fits = [](const Example& e) {
    return e.shapes[0].rank() >= 2 &&
           std::ranges::none_of(e.shapes, [](const Shape& s) { return s.numel() == 0; });
  };
  const auto at = std::ranges::find_if(all, fits);
  const Example first = at == all.end() ? all.front() : *at;
  Example large = first;
  if (row.view) return large;
  const std::vector<Axes> growing = growing_axes(row, first);
  for (size_t i = 0; !growing.empty() && total(row, large) < kElements; ++i) {
    Example next = large;
    grow(next, growing[i % growing.size()]);
    if (elements(row, next)) large = next;
  }
  for (int i = 0; i < first.shapes[0].rank(); ++i)  // indices reach as far as the axis they are for
    if (first.shapes[0][i] == first.classes) large.classes = large.shapes[0][i];
  return large;
}

/// The same few values again and again.
Tensor filled(const Tensor& block, const Shape& shape) {
  Tensor x = empty(shape, block.dtype());
  const size_t bytes = size_t(x.numel()) * size_of(x.dtype()), piece = block.impl()->storage->bytes;
  for (size_t at = 0; at < bytes; at += piece)
    std::memcpy(static_cast<char*>(x.data()) + at, block.data(), std::min(piece, bytes - at));
  return x;
}

std::vector<Tensor> operands_of(const OpRow& row, const Example& example, DType dtype) {
  Example blocks = example;
  for (Shape& s : blocks.shapes)
    if (!absent(s)) s = {1 << 15};
  std::vector<Tensor> xs = test::make_trial(row, blocks).operands(dtype, false);
  for (size_t k = 0; k < xs.size(); ++k)
    if (xs[k].defined()) xs[k] = filled(xs[k], example.shapes[k]);
  return xs;
}

/// Rows whose work is multiply-adds; of all others it is bytes.
struct Product {
  const OpRow* row;
  double (*flops)(const std::vector<Tensor>& xs, const Tensor& y);
  double backward;  // times the work of forward
};
constexpr Product kProducts[] = {
    {&Op::matmul, [](auto& xs, auto& y) { return 2.0 * y.numel() * xs[0].size(-1); }, 2},
    {&Op::linear, [](auto& xs, auto& y) { return 2.0 * y.numel() * xs[0].size(-1); }, 2},
    {&Op::conv2d, [](auto& xs, auto& y) { return 2.0 * y.numel() * xs[1].numel() / xs[1].size(0); },
     2},
    {&Op::scaled_dot_product_attention,
     [](auto& xs, auto&) { return 4.0 * xs[0].numel() * xs[1].size(-2); }, 2.5},
};

double flops_of(const OpRow& row, const std::vector<Tensor>& xs, const Attrs& attrs,
                Direction way) {
  for (const Product& product : kProducts)
    if (product.row == &row)
      return product.flops(xs, call(row, xs, attrs)[0]) *
             (way == Direction::backward ? product.backward : 1);
  return 0;
}

double bytes_of(const Tensor& x) {
  return x.defined() ? double(x.numel()) * double(size_of(x.dtype())) : 0;
}

}  // namespace

Body body_of(const OpRow& row, std::vector<Tensor> xs, const Attrs& attrs, Direction way,
             double flops) {
  NoGrad no_recording;
  std::vector<Tensor> ys = call(row, xs, attrs), moved;
  if (way == Direction::forward) {
    moved = xs;
    moved.insert(moved.end(), ys.begin(), ys.begin() + row.returned);
  }
  OpArgs args;
  args.n_in = int(xs.size());
  args.n_out = int(ys.size());
  args.attrs = attrs;
  for (size_t k = 0; way == Direction::backward && k < xs.size(); ++k) {
    if (!xs[k].defined()) continue;
    args.in[k] = arg_of(xs[k]);
    args.in[k].defined = true;
    if (row.saves.inputs >> k & 1) moved.push_back(xs[k]);
    if (!is_floating(xs[k].dtype())) continue;
    args.dtype = xs[k].dtype();
    moved.push_back(empty(xs[k].shape(), xs[k].dtype()));
    args.grad_in[k] = arg_of(moved.back());
  }
  for (size_t k = 0; way == Direction::backward && k < ys.size(); ++k) {
    args.out[k] = arg_of(ys[k]);
    if (row.saves.outputs >> k & 1) moved.push_back(ys[k]);
    if (int(k) >= row.returned || !is_floating(ys[k].dtype())) continue;
    moved.push_back(ones(ys[k].shape(), ys[k].dtype()));
    args.grad_out[k] = arg_of(moved.back());
  }
  Body body;
  body.flops = flops;
  for (const Tensor& x : moved) body.bytes += bytes_of(x);
  if (row.view || flops > 0) body.bytes = 0;
  if (way == Direction::forward)
    body.run = [&row, xs, attrs] {
      NoGrad no_recording;
      call(row, xs, attrs);
    };
  else
    body.run = [&row, args, xs, ys, moved]() mutable { row.backward[0](args); };
  return body;
}

std::vector<Set> row_sets(int threads) {
  std::vector<Set> sets;
  for (const OpRow* row : all_ops()) {
    if (row->view) continue;  // moves nothing
    for (Direction way : {Direction::forward, Direction::backward}) {
      if (way == Direction::backward && !row->differentiable) continue;
      const char* name = way == Direction::forward ? "forward" : "backward";
      Set& set = sets.emplace_back();
      for (DType dtype : kDTypesMeasured)
        set.push_back({std::string("rows/") + row->name + "/" + name + "/" + name_of(dtype),
                       threads, [row, dtype, way] {
                         const Example example = large_example(*row);
                         std::vector<Tensor> xs = operands_of(*row, example, dtype);
                         const double flops = flops_of(*row, xs, example.attrs, way);
                         return body_of(*row, std::move(xs), example.attrs, way, flops);
                       }});
    }
  }
  return sets;
}

}  // namespace minim::bench
