// tests/field_samples.h -- operands and checks of the tests of field cases.
#pragma once
#include <cmath>

#include "minim/tests/optim_fixture.h"

namespace minim::test {

/// Reproducible values in [-1, 1].
inline Tensor some(const Shape& shape, DType d = DType::f32) {
  Values v(size_t(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(double(7 * i + 1));
  return tensor(v, shape, d);
}

inline bool all_finite(const Tensor& x) {
  for (double v : x.to_vector())
    if (!std::isfinite(v)) return false;
  return true;
}

}  // namespace minim::test
