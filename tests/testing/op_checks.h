// tests/testing/op_checks.h -- the tests that every row of the table gets without anyone writing
// them. Each runs over the row's examples and returns what is wrong, in words; an empty list is a
// pass.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "minim/ops/op.h"

namespace minim::test {

using Findings = std::vector<std::string>;

/// Every element of every floating operand against central differences in f64, through call() and
/// the tape, within 1e-8 * (1 + |difference|). A row without backward must refuse operands that
/// require gradients.
Findings check_gradients(const OpRow& row);

/// f32, f16 and bf16: the f64 result of the same inputs rounded once, within half an ulp of the
/// output's dtype and c * 2^-24 * (|y| + sum |x_k| * max(1, |dy/dx_k|)), summed over the operand
/// elements that y depends on. The gradients in the same way, with c + 1 (one more for sums over
/// broadcast axes) and sum |g_i| * max(1, |dy_i/dx|); the f64 gradient is taken at the rounded
/// outputs, as far as backward reads them.
Findings check_dtypes(const OpRow& row);

/// Under f16 and bf16, policies torch and lean and every cast as an override: the dtype that the
/// row promises, and the bits of manual casts, forward and backward; gradients of leaves are f32;
/// f64 is left alone; banned rows refuse, naming what to use.
Findings check_autocast(const OpRow& row);

/// Transposed, stepped and expanded operands and cotangents give the bits of their dense copies,
/// forward and backward.
Findings check_layouts(const OpRow& row);

/// Random shapes (none, one, broadcast, one axis more) as random views (any order of axes, steps,
/// offsets, backwards, expanded) give the bits of their dense copies, forward and backward, in f32
/// and f64. Of pointwise rows, and of the table's rowwise ones and reductions, each result has the
/// bits that a call on its element or row alone gives, gathered index by index, and the gradient is
/// the sum of theirs.
Findings check_shapes(const OpRow& row);

/// Backward reads nothing that row.saves does not list, and needs each thing that it lists.
Findings check_saves(const OpRow& row);

/// Writing an operand or a result that requires gradients in place, or writing into it or a view of
/// it, with every in-place method and into places of every layout, is refused while recording; a
/// change in place between forward and backward is an error where backward reads what was changed,
/// and without effect elsewhere.
Findings check_in_place(const OpRow& row);

/// 1, 2 and 4 threads give the same bits, on examples scaled up until there is work for them.
Findings check_threads(const OpRow& row);

/// f32, f16 and bf16: operands at 2^e, neighbours and numbers between, for e over all the exponents
/// of the dtype (up to a quarter of its largest number, so that operands can be added), each alone
/// and mixed, give the f64 result and gradient of the same call wherever that number fits its
/// dtype: within half an ulp and c * 2^-24 times its condition, |y| + sum |x_k dy/dx_k|
/// (docs/accuracy.md). A sum one of whose addends does not fit may be infinite. Below 2^-126
/// numbers have the spacing 2^-149, and errors are held to that.
Findings check_range(const OpRow& row);

/// What the largest errors of check_range use of what is allowed there: 1 is all of it.
struct RangeShare {
  double lowest = 0, between = 0, highest = 0;  ///< an eighth of the exponents at either end
};
using RangeShares = std::map<DType, RangeShare>;
/// Empty for views.
RangeShares range_shares(const OpRow& row);

/// Has examples, says why, has an error constant >= 0, and a name that no other row has.
Findings check_description(const OpRow& row);

/// All of the above.
Findings check_all(const OpRow& row);

/// Half the distance between neighbours of v in dtype d; 0 for integers.
double half_ulp(DType d, double v);

}  // namespace minim::test
