#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string_view>

#include "minim/op_includes.h"
#include "minim/ops/row.h"
#include "minim/testing/op_trial.h"

namespace minim::test {
namespace {

struct Dice {
  std::mt19937 engine;
  Index below(Index n) { return Index(engine() % uint64_t(n)); }
  bool one_in(Index n) { return below(n) == 0; }
};

// ---- random shapes and views

constexpr Index kMostElements = 600;

/// The example with other sizes: equal ones stay equal, then some become 1, and an axis may be put
/// in front. Whether that is still a call of the row, only the row knows.
Example resized(const Example& example, Dice& dice) {
  constexpr Index sizes[] = {0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 9, 300};
  Example other = example;
  std::map<Index, Index> to;
  auto change = [&](Index& size) {
    if (size > 0) size = to.try_emplace(size, sizes[dice.below(std::size(sizes))]).first->second;
  };
  const Index front = dice.one_in(3) ? 1 + dice.below(3) : 0;
  const bool flat = dice.one_in(2);
  change(other.classes);
  for (Shape& shape : other.shapes) {
    if (absent(shape)) continue;
    for (int i = 0; i < shape.rank(); ++i) {
      change(shape[i]);
      if (!flat && dice.one_in(6)) shape[i] = 1;
    }
    if (front && shape.rank() < 5 && !dice.one_in(4)) shape.insert(0, dice.one_in(4) ? 1 : front);
  }
  return other;
}

Index elements(const Example& example) {
  Index most = 0;
  for (const Shape& s : example.shapes)
    if (!absent(s)) most = std::max(most, s.numel());
  return most;
}

bool possible(const Trial& trial) {
  try {
    manual_seed(1);
    call(trial.row, trial.operands(DType::f32, false), trial.example.attrs);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// x's values under random strides: axes in any order, steps, an offset, an axis backwards, an axis
/// expanded (which then repeats its first values); what lies between them is NaN.
Tensor random_view(const Tensor& x, Dice& dice) {
  std::vector<int> order(size_t(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), dice.engine);
  Shape held = x.shape();
  Strides strides = held;
  Index step = 1 + dice.below(3), offset = dice.below(4);
  for (int axis : order) {
    if (dice.one_in(6)) held[axis] = std::min<Index>(1, held[axis]);
    strides[axis] = step;
    step *= std::max<Index>(1, held[axis]) + dice.below(2);
  }
  const Tensor room =
      full({offset + step + 1}, is_floating(x.dtype()) ? std::nan("") : 1, x.dtype());
  for (int i = 0; i < x.rank(); ++i)
    if (held[i] > 1 && dice.one_in(6)) {
      offset += (held[i] - 1) * strides[i];
      strides[i] = -strides[i];
    }
  const Tensor first = as_strided(x, held, x.strides(), x.impl()->offset);
  copy_elements(first, as_strided(room, held, strides, offset));
  for (int i = 0; i < x.rank(); ++i)
    if (held[i] < x.shape()[i]) strides[i] = 0;
  return as_strided(room, x.shape(), strides, offset);
}

// ---- the same, index by index

/// What makes a row's elements independent of each other: along the kept axes of `shape` every
/// index is a call of its own.
struct Pieces {
  Shape shape;
  uint32_t kept = 0;
  Index count = 1;
};

using Axes = uint32_t (*)(const Attrs&, int rank);

template <class Struct>
concept ComparesPairs = requires(Struct* s) {
  []<class Element>(op::PairLoss<Element>*) {}(s);
};

/// The axes that form a row, as bits: none for pointwise ops; null where no such cut is known.
template <class Struct>
constexpr Axes axes_of() {
  using A = attrs_t<Struct>;
  if constexpr (detail::is_kind<Struct, op::Rowwise>)
    return [](const Attrs& a, int rank) { return Struct::axes(a.as<A>(), rank); };
  else if constexpr (detail::is_kind<Struct, op::Pointwise>)
    return [](const Attrs&, int) { return 0u; };
  else if constexpr (requires(A a) { a.axes, a.keepdim; })
    return [](const Attrs& a, int rank) { return op::axis_mask(a.as<A>().axes, rank, ""); };
  else if constexpr (ComparesPairs<Struct>)
    return [](const Attrs& a, int rank) {
      return a.as<A>().reduction == Reduction::none ? 0u : (1u << rank) - 1;
    };
  else
    return nullptr;
}

Axes axes_of(const OpRow& row) {
  static const std::map<const OpRow*, Axes> built_in = {
#define OP(name, Struct, ...) {&Op::name, axes_of<op::Struct>()},
#include "minim/ops/ops.def"
#undef OP
  };
  if (const auto found = built_in.find(&row); found != built_in.end()) return found->second;
  const bool pointwise = row.infer == detail::broadcast_shape && !row.view;
  return pointwise ? [](const Attrs&, int) { return 0u; } : Axes{};
}

Pieces pieces_of(const OpRow& row, const std::vector<Tensor>& xs, const Attrs& attrs) {
  Pieces pieces;
  for (size_t k = 0; k < xs.size(); ++k) {  // broadcast, aligned at the last axis
    if (!xs[k].defined() || row.operands[k].along != Along::row) continue;
    const Shape& own = xs[k].shape();
    while (pieces.shape.rank() < own.rank()) pieces.shape.insert(0, 1);
    for (int i = 1; i <= own.rank(); ++i)
      if (Index& size = pieces.shape[pieces.shape.rank() - i]; size == 1)
        size = own[own.rank() - i];
  }
  const int rank = pieces.shape.rank();
  pieces.kept = ((1u << rank) - 1) & ~axes_of(row)(attrs, rank);
  for (int i = 0; i < rank; ++i)
    if (pieces.kept >> i & 1) pieces.count *= pieces.shape[i];
  return pieces;
}

/// Where the elements of piece r are in a row-major tensor of shape `own`, which is aligned with
/// the pieces' shape at its last axis.
std::vector<size_t> places(const Pieces& pieces, Index r, const Shape& own) {
  const int rank = pieces.shape.rank(), missing = rank - own.rank();
  std::vector<Index> at(size_t(rank), 0);
  for (int i = rank; i-- > 0;)
    if (pieces.kept >> i & 1) at[size_t(i)] = r % pieces.shape[i], r /= pieces.shape[i];
  std::vector<size_t> found{0};
  for (int i = 0; i < own.rank(); ++i) {
    const bool kept = pieces.kept >> (i + missing) & 1;
    std::vector<size_t> next;
    for (size_t place : found)
      for (Index j = 0; j < (kept ? 1 : own[i]); ++j)
        next.push_back(place * size_t(own[i]) + size_t(!kept         ? j
                                                       : own[i] == 1 ? 0
                                                                     : at[size_t(i + missing)]));
    found = next;
  }
  return found;
}

struct Naive {
  std::vector<std::vector<double>> out, grads, sizes;  ///< sizes: of what a gradient is the sum
};

/// The call on each piece alone, as dense tensors of their own; the results put where they belong,
/// the gradients added up.
Naive one_by_one(const Trial& trial, const std::vector<Tensor>& xs, const Outcome& whole) {
  const OpRow& row = trial.row;
  const Pieces pieces = pieces_of(row, xs, trial.example.attrs);
  Naive naive;
  std::vector<std::vector<double>> values, cotangents;
  for (const Tensor& x : xs) {
    values.push_back(x.defined() ? x.to_vector() : std::vector<double>{});
    naive.grads.emplace_back(values.back().size(), 0.0);
    naive.sizes.emplace_back(values.back().size(), 0.0);
  }
  for (size_t o = 0; o < size_t(row.returned); ++o) {
    const Tensor& y = whole.out[o];
    naive.out.emplace_back(size_t(y.numel()), std::nan(""));
    cotangents.push_back(is_floating(y.dtype()) ? cotangent(y.shape(), y.dtype(), o).to_vector()
                                                : std::vector<double>{});
  }
  for (Index r = 0; r < pieces.count; ++r) {
    std::vector<Tensor> own;
    std::vector<std::vector<size_t>> from;
    for (size_t k = 0; k < xs.size(); ++k) {
      from.emplace_back();
      own.emplace_back();
      if (!xs[k].defined()) continue;
      Shape shape = xs[k].shape();
      if (row.operands[k].along == Along::shared) {
        from[k].resize(values[k].size());
        std::iota(from[k].begin(), from[k].end(), size_t{0});
      } else {
        from[k] = places(pieces, r, shape);
        for (int i = 0; i < shape.rank(); ++i)
          if (pieces.kept >> (i + pieces.shape.rank() - shape.rank()) & 1) shape[i] = 1;
      }
      std::vector<double> part;
      for (size_t i : from[k]) part.push_back(values[k][i]);
      own[k] = tensor(part, shape, xs[k].dtype());
      if (row.differentiable && is_floating(own[k].dtype())) own[k].set_requires_grad();
    }
    std::vector<Tensor> out = call(row, own, trial.example.attrs);
    for (size_t o = 0; o < size_t(row.returned); ++o) {
      const std::vector<double> y = out[o].to_vector();
      std::vector<size_t> to = places(pieces, r, pieces.shape);
      if (y.size() == 1) to = {size_t(r)};  // a value per row, or a row of one
      std::vector<double> g;
      for (size_t i = 0; i < y.size(); ++i) {
        naive.out[o].at(to.at(i)) = y[i];
        if (!cotangents[o].empty()) g.push_back(cotangents[o].at(to[i]));
      }
      if (out[o].requires_grad()) out[o].backward(tensor(g, out[o].shape(), out[o].dtype()), true);
    }
    for (size_t k = 0; k < own.size(); ++k) {
      if (!own[k].defined() || !own[k].requires_grad() || !own[k].grad().defined()) continue;
      const std::vector<double> d = own[k].grad().to_vector();
      for (size_t i = 0; i < d.size(); ++i) {
        naive.grads[k][from[k][i]] += d[i];
        naive.sizes[k][from[k][i]] += std::fabs(d[i]);
      }
    }
  }
  return naive;
}

bool near(double a, double b, double allowed) {
  return std::isnan(a) ? std::isnan(b) : a == b || std::fabs(a - b) <= allowed;
}

void compare_naive(const std::string& what, const Outcome& whole, const Naive& naive,
                   Findings& findings) {
  auto compare = [&](const char* part, size_t k, const Tensor& got,
                     const std::vector<double>& expected, const std::vector<double>& sizes) {
    const std::vector<double> v = got.to_vector();
    if (v.size() != expected.size())
      return findings.push_back(what + ": " + part + " " + std::to_string(k) + " has " +
                                std::to_string(v.size()) + " elements");
    const double step = got.dtype() == DType::f64 ? 1e-13 : 2e-5;
    for (size_t i = 0; i < v.size(); ++i)
      if (!near(v[i], expected[i], sizes.empty() ? 0 : step * sizes[i]))
        return findings.push_back(what + ": " + part + " " + std::to_string(k) + "[" +
                                  std::to_string(i) + "] is " + std::to_string(v[i]) + ", alone " +
                                  std::to_string(expected[i]));
  };
  for (size_t o = 0; o < naive.out.size(); ++o)
    compare("result", o, whole.out[o], naive.out[o], {});
  for (size_t k = 0; k < naive.grads.size(); ++k)
    if (k < whole.grads.size() && whole.grads[k].defined())
      compare("gradient", k, whole.grads[k], naive.grads[k], naive.sizes[k]);
}

/// One shape: views against their dense copies, and against the naive results, bit for bit;
/// gradients that are sums within a rounding of each.
void fuzz_one(const Trial& trial, Dice& dice, Findings& findings) {
  const OpRow& row = trial.row;
  for (DType d : {DType::f32, DType::f64}) {
    std::vector<Tensor> views, dense;
    std::string what = trial.name() + " in " + name_of(d);
    for (Tensor& x : trial.operands(d, false)) {
      views.push_back(x.defined() ? random_view(x, dice) : x);
      dense.push_back(x.defined() ? views.back().clone() : x);
      if (!x.defined()) continue;
      what += ", strides " + to_string(views.back().strides());
      if (!row.differentiable || !is_floating(d) || !is_floating(x.dtype())) continue;
      views.back().set_requires_grad();
      dense.back().set_requires_grad();
    }
    try {
      const Outcome a = forward_backward(trial, row, views, views);
      const Outcome b = forward_backward(trial, row, dense, dense);
      compare_bits(what, a, b, row.returned, findings);
      if (!row.random && axes_of(row))
        compare_naive(what + ", index by index", a, one_by_one(trial, dense, a), findings);
    } catch (const Error& e) {  // some views cannot be had from some strides; they say so
      if (!row.view || std::string_view(e.what()).find("contiguous()") == std::string_view::npos)
        findings.push_back(what + ": " + e.what());
    }
  }
}

/// FNV-1a: rows of equally long names get different shapes.
uint32_t seed_of(std::string_view name) {
  uint32_t hash = 0x811c9dc5;
  for (char c : name) hash = (hash ^ uint8_t(c)) * 0x01000193;
  return hash;
}

}  // namespace

Findings check_shapes(const OpRow& row) {
  constexpr int kShapes = 12, kAttempts = 150;  // for each example
  Findings findings;
  Dice dice{std::mt19937(seed_of(row.name))};
  for (const Trial& trial : trials(row)) {
    fuzz_one(trial, dice, findings);
    int done = 0;
    for (int i = 0; i < kAttempts && done < kShapes; ++i) {
      const Example other = resized(trial.example, dice);
      if (elements(other) > kMostElements) continue;
      const Trial next = make_trial(row, other);
      if (!possible(next)) continue;
      fuzz_one(next, dice, findings);
      ++done;
    }
  }
  return findings;
}

}  // namespace minim::test
