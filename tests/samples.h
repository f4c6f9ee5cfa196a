// tests/samples.h -- reproducible operands, and what tests of ops say about results and errors.
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "minim/core/parallel.h"
#include "minim/core/tensor.h"
#include "minim/tests/messages.h"

namespace minim::test {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Reproducible values of either sign, around 1.
inline Tensor noise(const Shape& shape, DType dtype = DType::f32, unsigned seed = 1) {
  std::vector<double> values(size_t(shape.numel()));
  for (double& v : values) v = double((seed = seed * 1664525u + 1013904223u) >> 16) / 32768 - 1;
  return tensor(values, shape, dtype);
}

/// The values in row-major order.
inline Tensor shaped(std::initializer_list<double> values, const Shape& shape,
                     DType dtype = DType::f64) {
  return tensor(std::span(values.begin(), values.size()), shape, dtype);
}

/// 0, 1, 2, ... from `first` on.
inline Tensor counting(const Shape& shape, double first = 0, DType dtype = DType::f64) {
  std::vector<double> values;
  for (Index i = 0; i < shape.numel(); ++i) values.push_back(first + double(i));
  return tensor(values, shape, dtype);
}

inline std::vector<double> gradient_of(const Tensor& x) { return x.grad().to_vector(); }

inline void check_close(const std::vector<double>& got, const std::vector<double>& expected,
                        double error) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(error));
}

struct Threads {
  int before = threads();
  explicit Threads(int n) { set_threads(n); }
  ~Threads() { set_threads(before); }
};

}  // namespace minim::test
