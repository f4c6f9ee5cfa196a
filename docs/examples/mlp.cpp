// An MLP tells two spirals apart (the benchmark of Lang and Witbrock, "Learning to tell two spirals
// apart", 1988), in each precision.
#include "minim/docs/examples/training.h"
#include "minim/models/init.h"

using namespace minim;

/// n points, every other one on the second arm: one and a half turns, with some noise.
example::Examples spirals(Index n) {
  using models::init::normal, models::init::uniform;
  Tensor labels = arange(n) - 2 * (arange(n) / 2).to(DType::i64);
  Tensor turn = 4 * std::numbers::pi * sqrt(uniform(zeros({n, 1}), 0.02, 1));
  Tensor angle = turn + std::numbers::pi * labels.to(DType::f32).unsqueeze(1);
  Tensor arm = cat({turn * cos(angle), turn * sin(angle)}, 1) / (4 * std::numbers::pi);
  return {arm + normal(zeros({n, 2}), 0, 0.04), labels};
}

std::unique_ptr<models::Module> mlp() {
  auto net = std::make_unique<models::Sequential>();
  auto layer = [&](Index in, Index out) {
    models::init::kaiming_normal(net->add<models::Linear>(in, out).weight);
  };
  layer(2, 64);
  net->add([](const Tensor& x) { return relu(x); });
  layer(64, 64);
  net->add([](const Tensor& x) { return relu(x); });
  layer(64, 2);
  return net;
}

int main(int argc, char** argv) {
  manual_seed(2026);
  return example::run(argc, argv,
                      {.model = mlp,
                       .train = spirals(2000),
                       .held_out = spirals(2000),
                       .steps = 2000,
                       .batch = 128,
                       .lr = 1e-2,
                       .least = 0.99});
}
