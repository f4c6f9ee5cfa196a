// tests/parity.h -- minim's errors beside PyTorch's, against f64: what is compared, and how it is
// measured. The golden files and the recurrence of their inputs: tools/make_goldens.py.
#pragma once
#include <string>
#include <vector>

#include "minim/core/tensor.h"
#include "minim/models/safetensors.h"

namespace minim::test {

/// `count` values in [0, 1), in steps of 2^-16.
std::vector<double> recurrence(Index count, uint32_t seed);

/// The largest errors of one tensor, in units of the dtype's epsilon (2^-23, 2^-10, 2^-7).
struct Errors {
  double absolute = 0;  ///< |error| over the largest |exact value| of the tensor
  double relative = 0;  ///< |error| over its own exact value, where that is not below largest/1000
};
Errors errors_of(const std::vector<double>& got, const std::vector<double>& exact, DType unit);

struct Comparison {
  std::string what, tensor;
  DType dtype;
  Errors minim, torch;
};

models::SafeTensors golden(const char* file);
/// @throws Error where the file has no such tensor.
std::vector<double> values_of(const models::SafeTensors& file, const std::string& name);

/// Every case of ops.safetensors in every dtype. Whatever is further from f64 than decided is added
/// to `findings`.
std::vector<Comparison> compare_ops(std::vector<std::string>& findings);
/// The results and gradients over many numbers: `long NAME/K` of ops.safetensors; `what` is the
/// NAME/K. minim's f64 is the reference.
std::vector<Comparison> compare_long_sums(std::vector<std::string>& findings);
/// The logits, gradients and losses of gpt.safetensors.
std::vector<Comparison> compare_gpt(std::vector<std::string>& findings);
struct AccuracyTables {
  std::vector<Comparison> ops, long_sums, gpt;
};
/// docs/accuracy.md. Measures the rows at their range's ends, too.
std::string accuracy_page(const AccuracyTables& all);

}  // namespace minim::test
