// tests/testing/op_trial.h -- one example of a row with its values, run forward and backward in
// ways that the harness compares.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "minim/autograd/gradcheck.h"
#include "minim/ops/call.h"
#include "minim/testing/op_checks.h"

namespace minim::test {

/// Whether an example leaves its optional operand of that shape out.
inline bool absent(const Shape& shape) { return shape == Shape{-1}; }

struct Trial {
  const OpRow& row;
  Example example;
  std::vector<std::vector<double>> values;  ///< per operand, row-major; empty where it is not given

  std::string name() const;
  bool given(size_t k) const;
  /// Fresh tensors: floating operands of dtype d (requiring gradients if `grad`), indices i64,
  /// booleans bool.
  std::vector<Tensor> operands(DType d, bool grad) const;
  void round_to(DType d);
};
/// Random values for the example, from where each operand's domain says.
Trial make_trial(const OpRow& row, const Example& example);
std::vector<Trial> trials(const OpRow& row);
/// The same example with every size above 1 multiplied; the example itself where the attributes do
/// not allow that.
Trial scaled_up(const Trial& trial);

enum class Layout { dense, transposed, stepped, expanded_first, expanded_last };
inline constexpr Layout kLayouts[] = {Layout::transposed, Layout::stepped, Layout::expanded_first,
                                      Layout::expanded_last};
const char* name_of(Layout layout);
/// x's values (for expanded: those of index 0, repeated) in a fresh storage of that layout; gaps
/// hold NaN.
Tensor laid_out(const Tensor& x, Layout layout);

struct Outcome {
  std::vector<Tensor> out, grads;
};
enum class Cotangents { laid_out, dense };
using Between = std::function<void(std::vector<Tensor>& out)>;

/// Calls the row on xs with fixed random numbers, runs `between`, then backward from every returned
/// floating result that requires gradients. `grads` are those of `leaves`.
Outcome forward_backward(const Trial& trial, const OpRow& row, const std::vector<Tensor>& xs,
                         const std::vector<Tensor>& leaves, const Between& between = {},
                         Layout layout = Layout::dense, Cotangents how = Cotangents::laid_out);
/// Exact in every floating dtype.
Tensor cotangent(const Shape& shape, DType dtype, size_t output);

/// All outputs (the first `results`) and gradients agree in dtype, shape and every bit.
void compare_bits(const std::string& what, const Outcome& a, const Outcome& b, int results,
                  Findings& findings);

bool same_bits(const Tensor& a, const Tensor& b);

/// The row's call on the trial's attributes, with fixed random numbers.
autograd::TensorFunction function_of(const Trial& trial);
/// Slopes of all floating results, in f64, and cotangents for them.
struct Jacobian {
  autograd::Slopes at;
  std::vector<double> cotangent;
};
Jacobian jacobian(const Trial& trial);

/// Overwrites the elements (NaN; other indices; flipped booleans) without a version change.
void poison(const Tensor& x);

}  // namespace minim::test
