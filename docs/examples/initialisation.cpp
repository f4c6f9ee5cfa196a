// Chapter 11: what weights begin with, and what keeps them small.
#include "minim/docs/examples/expect.h"
#include "minim/models/gpt.h"
#include "minim/models/init.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"

using namespace minim;
namespace init = models::init;

double deviation(const Tensor& x) {
  return minim::std(x.to(DType::f64).flatten(), {.axes = {0}}).item();
}

void twenty_layers() {
  auto through = [](auto fill, DType dtype) {
    generator() = {1, 0};
    Tensor x = init::normal(empty({64, 256}));
    for (int i = 0; i < 20; ++i) x = relu(linear(x.to(dtype), fill(empty({256, 256})).to(dtype)));
    return deviation(x);
  };
  auto kaiming = [](Tensor w) { return init::kaiming_normal(w); };
  auto xavier = [](Tensor w) { return init::xavier_normal(w); };
  auto small = [](Tensor w) { return init::normal(w, 0, 0.02); };
  double k = through(kaiming, DType::f32), x = through(xavier, DType::f32),
         s = through(small, DType::f32), s16 = through(small, DType::f16);
  std::printf("       after 20 layers with relu: kaiming %.2f, xavier %.1e, std 0.02 %.1e\n", k, x,
              s);
  std::printf("       std 0.02 in f16: %.1e\n", s16);
  expect("kaiming keeps the size", k > 0.3 && k < 3);
  expect("xavier, which is not made for relu, halves the variance in each", x < k / 300);
  expect("std 0.02 loses it, and in f16 all of it", s < 1e-12 && s16 == 0);
}

void residual_stream() {
  constexpr Index kLayers = 12;
  auto stream = [](bool scaled) {
    generator() = {1, 0};
    Tensor x = zeros({64, 256});
    for (Index i = 0; i < 2 * kLayers; ++i) {  // attention and MLP of each block
      Tensor inner = init::normal(empty({64, 256})), w = empty({256, 256});
      x = x + linear(inner, scaled ? init::residual_normal(w, kLayers) : init::normal(w, 0, 0.02));
    }
    return deviation(x);
  };
  double plain = stream(false), scaled = stream(true);
  std::printf("       residual stream after 12 blocks: %.3f, scaled %.3f\n", plain, scaled);
  expect("24 additions of one size make sqrt(24) of it",
         std::fabs(plain / scaled - std::sqrt(24)) < 0.01);
  expect("scaled, the stream is as wide as one addition", std::fabs(scaled - 0.02 * 16) < 0.02);

  generator() = {1, 0};
  models::GPT model({.vocab = 65, .layers = kLayers, .embd = 128});
  for (const auto& [name, p] : model.named_parameters())
    if (name == "blocks.0.attn.qkv.weight" || name == "blocks.0.attn.out.weight")
      std::printf("       %s %.4f\n", name.c_str(), deviation(p));
}

void dropped() {
  generator() = {1, 0};
  Tensor x = ones({100000}), y = dropout(x, {.p = 0.1});
  double zeros = mean((y == 0.0).to(DType::f32)).item();
  std::printf("       dropout 0.1: %.4f are 0, the mean is %.4f\n", zeros, mean(y).item());
  expect("a tenth is 0", std::fabs(zeros - 0.1) < 0.005);
  expect("the rest is larger, so that the mean stays", std::fabs(mean(y).item() - 1) < 0.005);
  models::Dropout layer(0.1);
  layer.eval();
  expect("in evaluation nothing happens", all(layer(x) == x, {}).item() == 1);
}

void decay_on_matrices() {
  models::GPT model({.vocab = 65, .block = 64, .layers = 2, .embd = 128});
  optim::ParamGroup matrices{.params = {}, .weight_decay = 0.1};
  optim::ParamGroup others{.params = {}, .weight_decay = 0.0};
  for (const Tensor& p : model.parameters())
    (p.rank() >= 2 ? matrices : others).params.push_back(p);
  std::printf("       %zu matrices are decayed, %zu vectors are not\n", matrices.params.size(),
              others.params.size());
  optim::AdamW opt({matrices, others}, {.lr = 0.1});
  Tensor gain, weight;
  for (const auto& [name, p] : model.named_parameters()) {
    p.set_grad(zeros(p.shape()));
    if (name == "blocks.0.norm1.weight") gain = p;
    if (name == "blocks.0.mlp.up.weight") weight = p;
  }
  double before = deviation(weight);
  opt.step();
  expect("a matrix shrinks by lr * decay", std::fabs(deviation(weight) / before - 0.99) < 1e-6);
  expect("a gain stays 1", mean(gain).item() == 1);
}

void smoothing() {
  auto slope = [](double z, double amount) {
    Tensor logits = tensor({z, 0}).reshape({1, 2}).set_requires_grad();
    cross_entropy(logits, tensor({0}, DType::i64), {.label_smoothing = amount}).backward();
    return logits.grad().to_vector()[0];
  };
  double rest = std::log(0.95 / 0.05);
  std::printf("       slope at logits %.3f and 0: %.4f, smoothed %.4f\n", rest, slope(rest, 0),
              slope(rest, 0.1));
  expect("without smoothing the right logit grows for ever", slope(rest, 0) < -0.04);
  expect("with it, it rests where p is 0.95", std::fabs(slope(rest, 0.1)) < 1e-6);
}

int main() {
  twenty_layers();
  residual_stream();
  dropped();
  decay_on_matrices();
  smoothing();
}
