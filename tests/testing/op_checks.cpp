#include "minim/testing/op_checks.h"

#include <cmath>
#include <string_view>

#include "minim/core/parallel.h"
#include "minim/testing/op_trial.h"

namespace minim::test {

double half_ulp(DType d, double v) {
  if (!is_floating(d)) return 0;
  int exponent = v == 0 ? -1100 : std::ilogb(v);
  return std::max(std::ldexp(1.0, exponent - info(d).digits), info(d).tiniest / 2);
}

namespace {

bool differ(double a, double b, double allowed) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) != std::isnan(b);
  return a != b && !(std::fabs(a - b) <= allowed);
}

template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  return text.str();
}

bool refuses_gradients(const Trial& trial) {
  try {
    std::vector<Tensor> out =
        call(trial.row, trial.operands(DType::f64, true), trial.example.attrs);
    return !out[0].requires_grad();
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

Findings check_gradients(const OpRow& row) {
  Findings findings;
  for (const Trial& trial : trials(row)) {
    if (!row.differentiable) {
      if (!refuses_gradients(trial))
        findings.push_back(trial.name() + ": no backward, yet the result requires gradients");
      continue;
    }
    for (const std::string& finding :
         autograd::gradcheck(function_of(trial), trial.operands(DType::f64, false))) {
      const size_t at = std::string("d input ").size(), end = finding.find('[');  // "d input 0[3]"
      const Operand& operand = row.operands[std::stoul(finding.substr(at, end - at))];
      findings.push_back(
          say(row.name, ": d ", operand.name, finding.substr(end), ", example ", trial.name()));
    }
  }
  return findings;
}

namespace {

/// What |x_k| contribute to the bound of output element j, and |g_j| to that of gradient element i.
double entering(const Jacobian& slopes, const std::vector<std::vector<double>>& x, size_t j) {
  double sum = 0;
  for (size_t k = 0; k < slopes.at.size(); ++k)
    for (size_t i = 0; i < slopes.at[k].size(); ++i)
      if (double s = slopes.at[k][i][j]; s != 0)
        sum += std::fabs(x[k][i]) * std::max(1.0, std::fabs(s));
  return sum;
}
double arriving(const Jacobian& slopes, size_t k, size_t i) {
  double sum = 0;
  for (size_t j = 0; j < slopes.cotangent.size(); ++j)
    if (double s = slopes.at[k][i][j]; s != 0)
      sum += std::fabs(slopes.cotangent[j]) * std::max(1.0, std::fabs(s));
  return sum;
}

void sweep_outputs(const Trial& trial, DType d, const Outcome& low, const Outcome& exact,
                   const Jacobian& slopes, Findings& findings) {
  size_t element = 0;  // among all floating results
  for (int o = 0; o < trial.row.returned; ++o) {
    DType stored = low.out[size_t(o)].dtype();
    std::vector<double> y = low.out[size_t(o)].to_vector(), want = exact.out[size_t(o)].to_vector();
    for (size_t j = 0; j < y.size(); ++j) {
      double noise = 0;
      if (is_floating(stored))
        noise = trial.row.error * 0x1p-24 *
                (std::fabs(want[j]) + entering(slopes, trial.values, element++));
      if (differ(y[j], want[j], half_ulp(stored, std::fabs(want[j]) + noise) + noise))
        findings.push_back(say(trial.name(), " in ", name_of(d), ": result ", o, "[", j, "] is ",
                               y[j], ", in f64 ", want[j]));
    }
  }
}

void sweep_gradients(const Trial& trial, DType d, const Outcome& low, const Outcome& exact,
                     const Jacobian& slopes, Findings& findings) {
  for (size_t k = 0; k < low.grads.size(); ++k) {
    if (!low.grads[k].defined()) continue;
    std::vector<double> dx = low.grads[k].to_vector(), want = exact.grads[k].to_vector();
    for (size_t i = 0; i < dx.size(); ++i) {
      double noise =
          (trial.row.error + 1) * 0x1p-24 * (std::fabs(want[i]) + arriving(slopes, k, i));
      double rounding = half_ulp(d, std::fabs(want[i]) + noise) * trial.row.returned;
      if (differ(dx[i], want[i], rounding + noise))
        findings.push_back(say(trial.name(), " in ", name_of(d), ": gradient ", k, "[", i, "] is ",
                               dx[i], ", in f64 ", want[i]));
    }
  }
}

}  // namespace

Findings check_dtypes(const OpRow& row) {
  Findings findings;
  for (Trial trial : trials(row))
    for (DType d : {DType::f32, DType::f16, DType::bf16}) {
      trial.round_to(d);
      bool grad = row.differentiable;
      // Leaves in f32, operands in d: gradients are then stored in d.
      std::vector<Tensor> leaves = trial.operands(DType::f32, grad), xs;
      for (const Tensor& x : leaves)
        xs.push_back(x.defined() && is_floating(x.dtype()) ? x.to(d) : x);
      Outcome low = forward_backward(trial, row, xs, leaves);
      std::vector<Tensor> exact_leaves = trial.operands(DType::f64, grad);
      std::vector<Tensor> exact_out;
      Outcome exact =
          forward_backward(trial, row, exact_leaves, exact_leaves, [&](std::vector<Tensor>& out) {
            for (int o = 0; o < row.returned; ++o) {
              exact_out.push_back(out[size_t(o)].detach().clone());
              if (row.saves.outputs >> o & 1) copy_elements(low.out[size_t(o)], out[size_t(o)]);
            }
          });
      exact.out = exact_out;
      Jacobian slopes = jacobian(trial);
      sweep_outputs(trial, d, low, exact, slopes, findings);
      if (grad) sweep_gradients(trial, d, low, exact, slopes, findings);
    }
  return findings;
}

Findings check_layouts(const OpRow& row) {
  Findings findings;
  for (const Trial& trial : trials(row))
    for (Layout layout : kLayouts) {
      bool grad = row.differentiable;
      std::vector<Tensor> strided = trial.operands(DType::f32, false), dense;
      for (Tensor& x : strided) {
        if (x.defined()) x = laid_out(x, layout);
        dense.push_back(x.defined() ? x.clone() : x);
        if (!x.defined() || !grad || !is_floating(x.dtype())) continue;
        x.set_requires_grad();
        dense.back().set_requires_grad();
      }
      try {
        Outcome a = forward_backward(trial, row, strided, strided, {}, layout);
        Outcome b = forward_backward(trial, row, dense, dense, {}, layout, Cotangents::dense);
        compare_bits(say(trial.name(), ", ", name_of(layout), " operands"), a, b, row.returned,
                     findings);
      } catch (const Error& e) {  // some views cannot be had from some strides; they say so
        if (!row.view || std::string_view(e.what()).find("contiguous()") == std::string_view::npos)
          throw;
      }
    }
  return findings;
}

Findings check_saves(const OpRow& row) {
  Findings findings;
  if (!row.differentiable) return findings;
  OpRow greedy = row;
  greedy.saves = {~0u, ~0u};
  Saves read;  // by any example's backward
  for (const Trial& trial : trials(row)) {
    auto gradients = [&](const OpRow& r, Saves poisoned) {
      std::vector<Tensor> xs = trial.operands(DType::f32, true);
      return forward_backward(trial, r, xs, xs, [&](std::vector<Tensor>& out) {
        for (size_t k = 0; k < xs.size(); ++k)
          if (poisoned.inputs >> k & 1) poison(xs[k]);
        for (size_t k = 0; k < out.size(); ++k)
          if (poisoned.outputs >> k & 1) poison(out[k]);
      });
    };
    Outcome want = gradients(greedy, {0, 0});
    auto matters = [&](Saves one) {
      Findings changed;
      compare_bits("", gradients(greedy, one), want, 0, changed);
      return !changed.empty();
    };
    for (uint32_t k = 0; k < kMaxOperands; ++k) {
      if (k < trial.row.operands.size() && trial.given(k) && matters({1u << k, 0}))
        read.inputs |= 1u << k;
      if (k < row.outputs.size() && matters({0, 1u << k})) read.outputs |= 1u << k;
    }
    Saves others{~row.saves.inputs, ~row.saves.outputs};
    if (row.view)
      others = {0,
                0};  // operand and result are the same bytes; nothing of them may be saved or read
    compare_bits(trial.name() + ", what is not saved overwritten", gradients(row, others), want, 0,
                 findings);
  }
  auto compare = [&](const char* list, uint32_t saved, uint32_t needed, auto name) {
    for (uint32_t k = 0; k < kMaxOperands; ++k) {
      if (saved >> k & ~(needed >> k) & 1)
        findings.push_back(
            say(row.name, ": ", name(k), " is saved, but backward does not read it"));
      if (needed >> k & ~(saved >> k) & 1)
        findings.insert(findings.begin(),
                        say(row.name, ": backward reads ", name(k),
                            ", which it does not save: add bit ", k, " to Saves::", list));
    }
  };
  compare("inputs", row.saves.inputs, read.inputs,
          [&](uint32_t k) { return say("operand ", k, " (", row.operands[k].name, ")"); });
  compare("outputs", row.saves.outputs, read.outputs, [](uint32_t k) { return say("result ", k); });
  return findings;
}

Findings check_threads(const OpRow& row) {
  Findings findings;
  int before = threads();
  for (const Trial& small : trials(row)) {
    Trial trial = scaled_up(small);
    Outcome one;
    for (int n : {1, 2, 4}) {
      set_threads(n);
      std::vector<Tensor> xs = trial.operands(DType::f32, row.differentiable);
      Outcome now = forward_backward(trial, row, xs, xs);
      if (n == 1)
        one = now;
      else
        compare_bits(say(trial.name(), " on ", n, " threads"), now, one, row.returned, findings);
    }
  }
  set_threads(before);
  return findings;
}

Findings check_description(const OpRow& row) {
  Findings findings;
  if (!row.name || !*row.name) return {"a row has no name"};
  if (!row.why || !*row.why) findings.push_back(say(row.name, ": no reason is given for its cast"));
  if (!(row.error >= 0)) findings.push_back(say(row.name, ": the error constant is ", row.error));
  if (row.examples().empty()) findings.push_back(say(row.name, ": no examples"));
  if ((row.cast == Cast::banned || row.lean == Cast::banned) && !row.instead)
    findings.push_back(say(row.name, ": banned, but does not say what to use instead"));
  int same = 0;
  for (const OpRow* other : all_ops()) same += std::string_view(other->name) == row.name;
  if (same > 1) findings.push_back(say(row.name, ": ", same, " rows have this name"));
  for (const Example& e : row.examples())
    if (e.shapes.size() != row.operands.size())
      findings.push_back(say(row.name, ": an example has ", e.shapes.size(), " shapes"));
  return findings;
}

Findings check_all(const OpRow& row) {
  Findings all;
  for (auto* check : {check_gradients, check_dtypes, check_autocast, check_layouts, check_shapes,
                      check_saves, check_in_place, check_threads, check_range, check_description})
    for (std::string& finding : check(row)) all.push_back(std::move(finding));
  return all;
}

}  // namespace minim::test
