#include "minim/optim/muon.h"

#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/core/update.h"
#include "minim/ops/functional.h"

namespace minim::optim {

Tensor orthogonalized(const Tensor& matrix) {
  NoGrad no_recording;
  amp::Autocast exact(amp::Autocast::off);
  bool tall = matrix.size(0) > matrix.size(1);
  Tensor x = tall ? matrix.transpose(0, 1) : matrix;  // the smaller of the two products
  x = x / (norm(x) + 1e-7);
  for (int i = 0; i < 5; ++i) {
    Tensor a = matmul(x, x.transpose(0, 1));
    x = 3.4445 * x + matmul(-4.7750 * a + 2.0315 * matmul(a, a), x);
  }
  return (tall ? x.transpose(0, 1) : x).contiguous();
}

std::pair<Tensor, Tensor> muon_direction(const Tensor& gradient, const amp::Factors& factors,
                                         const Tensor& momentum, double beta) {
  NoGrad no_recording;
  amp::Autocast exact(amp::Autocast::off);
  Tensor g = (gradient * factors.inverse_scale * factors.clip).to(momentum.dtype());
  Tensor next = lerp(momentum, g, 1 - beta);
  return {orthogonalized(lerp(g, next, beta)), next};
}

double muon_scale(const Tensor& matrix, bool match_adamw_rms) {
  double rows = double(matrix.size(0)), columns = double(matrix.size(1));
  return match_adamw_rms ? 0.2 * std::sqrt(std::max(rows, columns))
                         : std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace minim::optim
