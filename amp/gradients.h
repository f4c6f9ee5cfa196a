// amp/gradients.h -- what loss scaling, clipping and optimizers do to gradients: look whether they
// are finite, multiply them, and see which loss scale they still carry. All by the backend of their
// device.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "minim/core/step.h"
#include "minim/core/tensor.h"

namespace minim::amp {

/// The elements of each, and the device that they are all on. @throws Error where they are on
/// several.
struct FlatList {
  Device device;
  std::vector<Flat> all;
};
Flat flat_of(const Tensor& x);  ///< of an undefined one: no elements
FlatList flat_list(std::span<const Tensor> tensors, const char* what);

/// Each tensor once, where it stands first: what is done to a tied parameter is done once.
std::vector<Tensor> each_once(std::span<const Tensor> params);

/// Each parameter's gradient, dense and in f32 or f64; undefined where there is none. A gradient
/// that was set by hand in 16 bits or as a strided view is first replaced by such a copy.
std::vector<Tensor> dense_gradients(std::span<const Tensor> params);

const char* name_of(Finite finite);

struct FirstBad {
  Finite kind = Finite::yes;
  size_t index = 0;  ///< of the first gradient with a value that is not finite
};
/// Looks at the gradients as the factors make them, and changes nothing.
FirstBad first_nonfinite(std::span<const Tensor> gradients, Factors factors = {});

/// Multiplies in place and says what the products are; memory that several share, once.
FirstBad multiply(std::span<const Tensor> gradients, double factor);

/// float(1 / scale), the reciprocal in double: what undoes a loss scale.
inline float inverse_of(double scale) { return float(1 / scale); }

/// Whether a loss can be multiplied by it and divided again in fp32.
inline bool is_scale(double v) {
  constexpr float most = std::numeric_limits<float>::max();
  return float(v) > 0 && float(v) <= most && inverse_of(float(v)) <= most;
}

/// "'head.weight'", or "parameter 3" where it has no name.
std::string label(const Tensor& param, size_t index);

/// @throws Error for a parameter that an op made: no gradient ends there.
void check_leaf(const Tensor& param, size_t index, const char* what);

/// @throws Error when a gradient carries another loss scale than `expected`, naming the parameter
/// and the fix.
void check_scale(std::span<const Tensor> params, double expected, const char* what);

}  // namespace minim::amp
