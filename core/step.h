// core/step.h -- what a step of training asks of a backend: lists of gradients and of updates, so
// that all tensors go in one call.
#pragma once
#include <cstdint>

#include "minim/core/device.h"
#include "minim/core/dtype.h"
#include "minim/core/shape.h"
#include "minim/core/update.h"

namespace minim {

namespace amp {

/// How bad the worst of some values is.
enum class Finite : uint8_t { yes, inf, nan };

/// What each gradient is to be multiplied by, one factor after the other, each product rounded to
/// the gradient's dtype.
struct Factors {
  double inverse_scale = 1, clip = 1;
};

}  // namespace amp

/// The n dense elements of a tensor; gradients are f32 or f64. Without elements where there is
/// none.
struct Flat {
  void* data = nullptr;
  DType dtype = DType::f32;
  Index n = 0;
};

namespace optim {

/// What a step does to one parameter, in f32, or f64 for an f64 parameter.
struct Update {
  Kind kind = Kind::sgd;
  Constants<double> constants;
  amp::Factors factors;
  Flat param, grad;
  float* master = nullptr;  ///< of a 16-bit parameter: what is updated, and the parameter its
                            ///< rounding; where that was written since, it takes what was written
  void* states[3] = {};     ///< null: there is none
  bool stochastic = false;  ///< bf16 without a master: rounded up or down by draws of the stream
  uint64_t seed = 0, stream = 0;
};

}  // namespace optim
}  // namespace minim
