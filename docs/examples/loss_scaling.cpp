// Chapter 4: a gradient that f16 loses, and the scale that keeps it.
#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"

using namespace minim;

/// The gradient of w in loss = mean over 1024 of (x w) * 1e-5, through an f16 product.
Tensor gradient(amp::GradScaler& scaler, Tensor& w) {
  Tensor x = full({1024, 1}, 1.0), loss;
  {
    amp::Autocast on(DType::f16);
    loss = mean(matmul(x, w).to(DType::f32) * 1e-5);
  }
  w.set_grad({});
  scaler.scale(loss).backward();
  return w.grad();
}

int main() {
  Tensor w = full({1, 1}, 1.0);
  w.set_requires_grad();

  amp::GradScaler none({.enabled = false});
  expect("1e-5 / 1024 is below f16's 6e-8: the gradient is gone", gradient(none, w).item() == 0);

  amp::GradScaler scaler({.init_scale = 65536});
  Tensor scaled = gradient(scaler, w);
  expect("scaled by 65536 it is there", scaled.item() > 0.6);
  optim::SGD sgd(std::vector<Tensor>{w}, {.lr = 1});
  scaler.unscale(sgd);
  expect("and unscaled it is 1e-5", std::fabs(w.grad().item() - 1e-5) < 1e-8);
  expect("the step is taken", scaler.step(sgd).stepped);
  scaler.update();
}
