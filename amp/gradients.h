// amp/gradients.h -- what loss scaling, clipping and optimizers do to gradients: look whether they
// are finite, multiply them, and see which loss scale they still carry. Work is cut into chunks by
// sizes alone, across tensors.
#pragma once
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "minim/core/parallel.h"
#include "minim/core/tensor.h"

namespace minim::amp {

/// A piece of one of several tensors: elements [begin, end) of tensor number `tensor`.
struct Chunk {
  size_t tensor;
  Index begin, end;
};
/// All elements of all tensors in pieces of at most 16384, in order; undefined tensors have none.
std::vector<Chunk> chunks_of(std::span<const Tensor> tensors);

/// f(p, n) with the n elements of a tensor in f32 or f64.
template <class F>
void with_elements(const Tensor& x, F&& f) {
  x.dtype() == DType::f64 ? f(static_cast<double*>(x.data()), x.numel())
                          : f(static_cast<float*>(x.data()), x.numel());
}
/// f(k, p, n) with those of every chunk k, threaded.
template <class F>
void each_chunk(std::span<const Tensor> tensors, std::span<const Chunk> chunks, F&& f) {
  parallel_for(Index(chunks.size()), 1, [&](Index first, Index last) {
    for (size_t k = size_t(first); k < size_t(last); ++k) {
      const Chunk& c = chunks[k];
      with_elements(tensors[c.tensor], [&](auto* p, Index) { f(k, p + c.begin, c.end - c.begin); });
    }
  });
}

/// Each tensor once, where it stands first: what is done to a tied parameter is done once.
std::vector<Tensor> each_once(std::span<const Tensor> params);

/// Each parameter's gradient, dense and in f32 or f64; undefined where there is none. A gradient
/// that was set by hand in 16 bits or as a strided view is first replaced by such a copy.
std::vector<Tensor> dense_gradients(std::span<const Tensor> params);

/// How bad the worst of some values is.
enum class Finite : uint8_t { yes, inf, nan };
const char* name_of(Finite finite);

/// What each gradient is to be multiplied by, one factor after the other, each product rounded to
/// the gradient's dtype.
struct Factors {
  double inverse_scale = 1, clip = 1;
};

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
