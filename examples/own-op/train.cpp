// Trains a small network whose activation is this program's own op, in amp-fp16: two spirals, which
// no line separates. Exits with 1 unless it learned them.
#include <cmath>
#include <cstdio>
#include <numbers>

#include "squareplus.h"

using namespace minim;

int main() {
  register_op(squareplus_row);  // from here on it is listed beside the built-in ones, by its name

  constexpr Index kPoints = 256;
  std::vector<double> points, labels;
  for (Index i = 0; i < kPoints; ++i) {
    const double side = i % 2 ? 1 : -1, t = double(i) / kPoints;
    const double angle = 3 * std::numbers::pi * t, radius = side * (0.1 + t);
    points.insert(points.end(), {radius * std::cos(angle), radius * std::sin(angle)});
    labels.push_back(double(i % 2));
  }
  const Tensor x = tensor(points, {kPoints, 2}), y = tensor(labels, {kPoints, 1});

  models::Sequential net;
  for (Index in : {2, 32}) {
    models::init::kaiming_uniform(net.add<models::Linear>(in, 32).weight, 1);
    net.add([](const Tensor& h) { return squareplus(h, {.b = 0.25}); });
  }
  net.add<models::Linear>(32, 1);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  amp::GradScaler scaler;
  double right = 0;
  for (int step = 0; step <= 400; ++step) {
    Tensor loss, logits;
    {
      amp::Autocast on(DType::f16);  // {{squareplus_row, Cast::fp32}} would be this op in fp32
      logits = net(x);
      loss = bce_with_logits(logits, y);
    }
    opt.zero_grad();
    scaler.scale(loss).backward();
    scaler.step(opt);
    scaler.update();
    right = 0;
    for (Index i = 0; const double z : logits.to_vector()) right += (z > 0) == (i++ % 2 == 1);
    if (step % 100 == 0)
      std::printf("step %3d  loss %.4f  right %.1f %%  scale %g\n", step, loss.item(),
                  100 * right / kPoints, scaler.scale());
  }
  return right >= 0.98 * kPoints ? 0 : 1;
}
