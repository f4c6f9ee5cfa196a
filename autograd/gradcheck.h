// autograd/gradcheck.h -- compares backward() with central differences.
#pragma once
#include <string>

#include "minim/autograd/node.h"

namespace minim::autograd {

struct GradcheckOptions {
  double eps = 6.0554544523933429e-06;  ///< cbrt(2^-52); a step is eps * max(0.25, |x|)
  double atol = 1e-8, rtol = 1e-8;      ///< allowed: atol + rtol * |difference quotient|
};

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Slopes of all floating results: [input][element][result element], results one after the other;
/// an input that is not f64 has none. Each call of `fn` draws the same random numbers.
using Slopes = std::vector<std::vector<std::vector<double>>>;
Slopes numeric_slopes(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                      double eps = GradcheckOptions().eps);

/// The gradient of every f64 input, for fixed pseudo-random cotangents of all results that require
/// gradients, against differences in f64. Inputs of other dtypes are passed on as they are.
/// @returns what differs, in words; an empty list is a pass.
/// @throws Error when there is no f64 input, or no result requires gradients.
std::vector<std::string> gradcheck(const TensorFunction& fn, const std::vector<Tensor>& inputs,
                                   const GradcheckOptions& options = {});
std::vector<std::string> gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& fn,
                                   const std::vector<Tensor>& inputs,
                                   const GradcheckOptions& options = {});

}  // namespace minim::autograd
