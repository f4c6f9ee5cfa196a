// testing/op_condition.h -- a row's results and gradients, and how far rounding may move them: for
// op_range.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "minim/core/random.h"
#include "minim/testing/op_trial.h"

namespace minim::test::detail {

/// Rows that multiply several operands on the way: their exponents stay where those products fit
/// (and scores, of which a softmax is made, are told apart), and their gradients are differences of
/// products of all that the slope is made of.
struct Products {
  std::string_view name;
  int low, high;
};
inline constexpr Products kProducts[] = {{"scaled_dot_product_attention", -40, 8}};
inline const Products* products_of(const OpRow& row) {
  for (const Products& p : kProducts)
    if (p.name == row.name) return &p;
  return nullptr;
}

/// Rows whose gradients are what a projection leaves of much larger terms.
inline constexpr std::string_view kProjections[] = {"batch_norm", "cosine_similarity", "group_norm",
                                                    "layer_norm", "rms_norm"};

using Values = std::vector<std::vector<double>>;  // of each operand, or of each result

inline constexpr double kMove = 0x1p-26;  // by how much of itself a number is moved

/// A 64-bit draw for what is numbered (a, b, c).
inline uint64_t draw(uint64_t a, uint64_t b, uint64_t c) {
  const auto four = Philox::block(a, b, c);
  return uint64_t{four[0]} << 32 | four[1];
}

inline bool is_float(const OpRow& row, size_t k) {
  return row.operands[k].accepts == Accepts::floating && row.operands[k].domain != Domain::index;
}

/// Results and gradients of a row, for the cotangents `g` of the results.
struct Answer {
  Values y, dx;
  std::vector<Tensor> out;
};
inline Answer answer(const Trial& trial, DType d, const Values& g,
                     const Answer* rounded = nullptr) {
  const OpRow& row = trial.row;
  const std::vector<Tensor> xs = trial.operands(d, row.differentiable);
  manual_seed(20);
  std::vector<Tensor> out = call(row, xs, trial.example.attrs);
  Answer a;
  for (size_t o = 0; o < size_t(row.returned); ++o) {
    a.y.push_back(out[o].to_vector());
    a.out.push_back(out[o].detach().clone());
    if (rounded && row.saves.outputs >> o & 1) copy_elements(rounded->out[o], out[o]);
  }
  for (size_t o = 0; o < size_t(row.returned); ++o)
    if (is_floating(out[o].dtype()) && out[o].requires_grad())
      out[o].backward(tensor(g[o], out[o].shape(), out[o].dtype()), true);
  for (const Tensor& x : xs)
    a.dx.push_back(x.defined() && x.grad().defined() ? x.grad().to_vector()
                                                     : std::vector<double>());
  return a;
}

/// Multiples of 1/32 in [-2, 2), as many as there are results; none is 0.
inline Values cotangents(const Trial& trial) {
  Values all;
  const std::vector<Tensor> out = function_of(trial)(trial.operands(DType::f64, false));
  for (size_t o = 0; o < out.size(); ++o) {
    std::vector<double> g(size_t(out[o].numel()));
    for (size_t j = 0; j < g.size(); ++j) {
      const double v = double(draw(21, o, j) % 128) - 64;
      g[j] = j == 0 || v == 0 ? 1 : v / 32;
    }
    all.push_back(std::move(g));
  }
  return all;
}

/// What relative errors of 1 in all that goes in make of each number, to first order: the sum of
/// |dy/dx| |x|, by differences. A subnormal x counts as the smallest normal number: it has that
/// one's spacing.
class Condition {
 public:
  Condition(const Trial& trial, const Values& g, const Answer& exact, const Answer& rounded,
            double smallest_normal, bool elementwise)
      : base_(exact), y_(exact.y), dx_(exact.dx), elementwise_(elementwise) {
    for (Values* all : {&y_, &dx_})
      for (auto& numbers : *all)
        for (double& v : numbers) v = std::fabs(v);
    auto add = [&](const Trial& t, const Values& cotangent) {
      const Answer moved = answer(t, DType::f64, cotangent, &rounded);
      add_changes(moved.y, base_.y, y_), add_changes(moved.dx, base_.dx, dx_);
    };
    Trial moved = trial;
    auto move = [&](double& x) { x += kMove * std::max(std::fabs(x), smallest_normal); };
    for (size_t k = 0; k < moved.values.size(); ++k) {
      if (!is_float(trial.row, k)) continue;
      for (size_t i = 0; i < moved.values[k].size(); ++i) {
        move(moved.values[k][i]);
        if (elementwise && i + 1 < moved.values[k].size()) continue;
        add(moved, g);
        moved.values[k] = trial.values[k];
      }
    }
    if (elementwise || !trial.row.differentiable) return;
    if (products_of(trial.row)) add_products(trial, g);
    if (std::count(std::begin(kProjections), std::end(kProjections), trial.row.name))
      add_terms(trial, g);
    for (size_t o = 0; o < g.size(); ++o) {  // results that backward reads
      if (!(trial.row.saves.outputs >> o & 1)) continue;
      for (size_t j = 0; j < g[o].size(); ++j) {
        Answer read = rounded;
        std::vector<double> y = rounded.out[o].to_vector();
        move(y[j]);
        read.out[o] = tensor(y, rounded.out[o].shape(), DType::f64);
        add_changes(answer(trial, DType::f64, g, &read).dx, base_.dx, dx_);
      }
    }
    Values turned = g;
    for (size_t o = 0; o < g.size(); ++o)
      for (size_t j = 0; j < g[o].size(); ++j) {
        turned[o][j] += kMove * std::fabs(g[o][j]);
        add(trial, turned);
        turned[o][j] = g[o][j];
      }
  }
  /// Of results and gradients that are no single elements' but sums: the largest of the tensor.
  double of_y(size_t o, size_t j) const { return elementwise_ ? y_[o][j] : largest(y_[o]); }
  double of_dx(size_t k, size_t i) const { return elementwise_ ? dx_[k][i] : largest(dx_[k]); }

 private:
  static double largest(const std::vector<double>& v) {
    return v.empty() ? 0 : *std::max_element(v.begin(), v.end());
  }
  static double size(const std::vector<double>& v) {
    double most = 0;
    for (double x : v) most = std::max(most, std::fabs(x));
    return most;
  }
  /// The size of the terms: what is left of them where all that an operand is multiplied by is as
  /// large as its largest element, and of any sign.
  void add_terms(const Trial& trial, const Values& g) {
    auto level = [](std::vector<double>& v, uint64_t which) {
      const double most = size(v);
      for (size_t i = 0; i < v.size(); ++i) v[i] = draw(24, which, i) % 2 ? most : -most;
    };
    for (size_t k = 0; k < dx_.size(); ++k) {
      Trial t = trial;
      for (size_t other = 0; other < t.values.size(); ++other)
        if (other != k && t.given(other) && is_float(t.row, other) &&
            t.row.operands[other].domain != Domain::positive)
          level(t.values[other], other);
      if (!is_float(trial.row, k) || !trial.given(k)) continue;
      double terms = 0;
      for (uint64_t which = 100; which < 104; ++which) {
        Values even = g;
        for (auto& v : even) level(v, which);
        terms = std::max(terms, size(answer(t, DType::f64, even).dx[k]));
      }
      for (double& v : dx_[k]) v += terms;
    }
  }
  void add_products(const Trial& trial, const Values& g) {
    for (size_t k = 0; k < dx_.size(); ++k) {
      double product = size(g[0]);
      for (size_t other = 0; other < trial.values.size(); ++other)
        if (other != k && trial.given(other) && is_float(trial.row, other))
          product *= size(trial.values[other]);
      for (double& v : dx_[k]) v += product;
    }
  }
  static void add_changes(const Values& moved, const Values& from, Values& sum) {
    for (size_t k = 0; k < sum.size(); ++k)
      for (size_t i = 0; i < sum[k].size(); ++i)
        sum[k][i] += std::fabs(moved[k][i] - from[k][i]) / kMove;
  }
  const Answer& base_;
  Values y_, dx_;
  bool elementwise_;
};

}  // namespace minim::test::detail
