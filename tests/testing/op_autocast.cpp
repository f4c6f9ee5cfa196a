// What a row promises under autocast, against the same call with its casts written out.
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>

#include "minim/amp/autocast.h"
#include "minim/testing/op_trial.h"

namespace minim::test {
namespace {

using amp::Autocast;
using amp::Policy;

struct Region {
  DType lower;
  Policy policy = Policy::torch;
  std::optional<Cast> over = {};  ///< in place of the row's
  Cast cast_of(const OpRow& row) const {
    return over ? *over : policy == Policy::torch ? row.cast : row.lean;
  }
};

std::string describe(const Trial& trial, const Region& region) {
  return trial.name() + " under " + name_of(region.lower) + " autocast, " +
         (region.over ? std::string("override ") + name_of(*region.over)
                      : std::string("policy ") + amp::name_of(region.policy));
}

bool casts(const OpRow& row, size_t k, const Tensor& x) {
  return x.defined() && row.operands[k].accepts == Accepts::floating && is_floating(x.dtype());
}

/// The dtype that the floating operands get; they keep theirs where it is `keep`.
DType promised(const OpRow& row, const Region& region, const std::vector<Tensor>& xs) {
  DType widest = region.lower;
  for (size_t k = 0; k < xs.size(); ++k)
    if (casts(row, k, xs[k])) widest = promote_types(widest, xs[k].dtype());
  switch (region.cast_of(row)) {
    case Cast::lower:
      return region.lower;
    case Cast::fp32:
      return DType::f32;
    default:
      return widest;
  }
}

std::vector<Tensor> with_casts(const OpRow& row, const Region& region,
                               const std::vector<Tensor>& leaves) {
  if (region.cast_of(row) == Cast::keep) return leaves;
  std::vector<Tensor> xs = leaves;
  for (size_t k = 0; k < xs.size(); ++k)
    if (casts(row, k, xs[k])) xs[k] = xs[k].to(promised(row, region, leaves));
  return xs;
}

/// Operands of the given dtypes in turn, requiring gradients where the row has a backward.
std::vector<Tensor> leaves_of(const Trial& trial, std::initializer_list<DType> dtypes) {
  std::vector<Tensor> xs = trial.operands(DType::f32, false);
  for (size_t k = 0, turn = 0; k < xs.size(); ++k) {
    if (!xs[k].defined() || !is_floating(xs[k].dtype())) continue;
    xs[k] = xs[k].to(std::data(dtypes)[turn++ % dtypes.size()]);
    if (trial.row.differentiable) xs[k].set_requires_grad();
  }
  return xs;
}

Outcome in_region(const Trial& trial, const Region& region, const std::vector<Tensor>& leaves) {
  auto on = region.over
                ? std::make_unique<Autocast>(
                      region.lower, std::initializer_list<amp::Override>{{trial.row, *region.over}})
                : std::make_unique<Autocast>(region.lower, region.policy);
  return forward_backward(trial, trial.row, leaves, leaves, [&](auto&) { on.reset(); });
}

void check_banned(const Trial& trial, const Region& region, Findings& findings) {
  try {
    in_region(trial, region, leaves_of(trial, {DType::f32}));
    findings.push_back(describe(trial, region) + ": banned, but it ran");
  } catch (const Error& e) {
    const char* said = region.over ? "banned by an override" : trial.row.instead;
    if (!said || std::string_view(e.what()).find(said) == std::string_view::npos)
      findings.push_back(describe(trial, region) +
                         ": the refusal does not say what to use instead: " + e.what());
  }
}

void check_region(const Trial& trial, const Region& region, std::initializer_list<DType> dtypes,
                  Findings& findings) {
  const OpRow& row = trial.row;
  std::vector<Tensor> leaves = leaves_of(trial, dtypes), again = leaves_of(trial, dtypes);
  Outcome got = in_region(trial, region, leaves);
  Outcome want = forward_backward(trial, row, with_casts(row, region, again), again);
  std::string where = describe(trial, region);
  compare_bits(where, got, want, row.returned, findings);

  bool speaks = false;
  for (size_t k = 0; k < leaves.size(); ++k) speaks |= casts(row, k, leaves[k]);
  DType result = got.out[0].dtype();
  if (speaks && row.result == Result::same && region.cast_of(row) != Cast::keep)
    if (result != promised(row, region, leaves))
      findings.push_back(where + ": the result is " + name_of(result) + ", the row promises " +
                         name_of(promised(row, region, leaves)));
  if (row.result == Result::f32 && result != DType::f32)
    findings.push_back(where + ": the result must be f32, it is " + name_of(result));
  for (const Tensor& g : got.grads)
    if (g.defined() && g.dtype() != DType::f32)
      findings.push_back(where + ": a leaf's gradient is " + name_of(g.dtype()));
}

void check_f64(const Trial& trial, const Region& region, Findings& findings) {
  std::vector<Tensor> leaves = leaves_of(trial, {DType::f64}),
                      again = leaves_of(trial, {DType::f64});
  Outcome got = in_region(trial, region, leaves),
          want = forward_backward(trial, trial.row, again, again);
  compare_bits(describe(trial, region) + ", f64", got, want, trial.row.returned, findings);
}

}  // namespace

/// Under both policies, and with every cast as an override.
static std::vector<Region> regions(const OpRow& row) {
  std::vector<Region> all;
  for (DType lower : {DType::f16, DType::bf16}) {
    for (Policy policy : {Policy::torch, Policy::lean}) all.push_back({lower, policy});
    for (Cast cast : {Cast::lower, Cast::fp32, Cast::promote, Cast::keep, Cast::banned})
      if (&row != &Op::to) all.push_back({lower, Policy::torch, cast});
  }
  return all;
}

/// Operands of two dtypes, which only a cast makes one, are refused by name.
static void check_refused(const Trial& trial, const Region& region, Findings& findings) {
  const std::vector<Tensor> leaves = leaves_of(trial, {DType::f32, region.lower});
  Index floating = 0;
  for (size_t k = 0; k < leaves.size(); ++k) floating += casts(trial.row, k, leaves[k]);
  if (floating < 2) return;
  try {
    in_region(trial, region, leaves);
    findings.push_back(describe(trial, region) + ": mixed dtypes are not refused");
  } catch (const Error& e) {
    if (std::string_view(e.what()).find(trial.row.name) == std::string_view::npos)
      findings.push_back(describe(trial, region) + ": the refusal does not name the row");
  }
}

Findings check_autocast(const OpRow& row) {
  Findings findings;
  for (const Trial& trial : trials(row))
    for (const Region& region : regions(row)) {
      if (region.cast_of(row) == Cast::banned) {
        check_banned(trial, region, findings);
        continue;
      }
      check_region(trial, region, {DType::f32}, findings);
      check_region(trial, region, {region.lower}, findings);
      bool may_mix = !row.same_dtype || region.cast_of(row) != Cast::keep;
      if (!may_mix) check_refused(trial, region, findings);
      if (may_mix) check_region(trial, region, {DType::f32, region.lower}, findings);
      if (may_mix) check_region(trial, region, {region.lower, DType::f32}, findings);
      check_f64(trial, region, findings);
    }
  return findings;
}

}  // namespace minim::test
