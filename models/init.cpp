#include "minim/models/init.h"

#include <cmath>

#include "minim/autograd/node.h"
#include "minim/core/random.h"
#include "minim/ops/call.h"

namespace minim::models::init {
namespace {

/// Fills x with f(block of 128 random bits), one block an element.
template <class F>
Tensor draw(Tensor x, F f) {
  if (GradMode::enabled() && x.requires_grad() && x.impl()->autograd->node)
    fail("[init] ", origin(x), " ", name_of(x.dtype()), x.shape(),
         " is recorded: new values would not fit its history; fill a parameter itself, or its "
         "parts under NoGrad");
  uint64_t stream = random_stream(RandomUse::init, generator().next_stream++);
  std::vector<double> values(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = f(Philox::block(generator().seed, stream, i));
    detail::check_number("init", values[i], x.dtype(), false);
  }
  copy_elements(tensor(values, x.shape(), DType::f64), x);
  x.bump_version();
  return x;
}

struct Fans {
  double in, out;
};
Fans fans(const Tensor& x) {
  if (x.rank() < 2) fail("fan-based initialisers need a matrix (out, in, ...), not ", x.shape());
  double field = double(x.numel()) / double(x.size(0) * x.size(1));
  return {double(x.size(1)) * field, double(x.size(0)) * field};
}

}  // namespace

Tensor normal(Tensor x, double mean, double std) {
  return draw(x, [=](auto bits) { return mean + std * minim::normal(bits)[0]; });
}
Tensor uniform(Tensor x, double low, double high) {
  return draw(x, [=](auto bits) { return low + (high - low) * uniform01(join(bits[0], bits[1])); });
}
Tensor xavier_normal(Tensor x, double gain) {
  Fans f = fans(x);
  return normal(x, 0, gain * std::sqrt(2 / (f.in + f.out)));
}
Tensor xavier_uniform(Tensor x, double gain) {
  Fans f = fans(x);
  double limit = gain * std::sqrt(6 / (f.in + f.out));
  return uniform(x, -limit, limit);
}
Tensor kaiming_normal(Tensor x, double gain) { return normal(x, 0, gain / std::sqrt(fans(x).in)); }
Tensor kaiming_uniform(Tensor x, double gain) {
  double limit = gain * std::sqrt(3 / fans(x).in);
  return uniform(x, -limit, limit);
}
Tensor residual_normal(Tensor x, Index layers, double std) {
  return normal(x, 0, std / std::sqrt(2.0 * double(layers)));
}

}  // namespace minim::models::init
