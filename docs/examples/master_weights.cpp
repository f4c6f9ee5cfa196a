// Chapter 8: updates that bf16 loses, and three ways to keep them.
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"
#include "minim/optim/muon.h"
#include "minim/optim/optimizer.h"

using namespace minim;

Tensor leaf(const Shape& shape, double value, DType dtype) {
  return full(shape, value, dtype).set_requires_grad();
}
double average(const Tensor& x) { return mean(x.to(DType::f64)).item(); }

/// The mean of 1000 weights that begin at 1 after 100 steps of -6e-4.
double after_100(const optim::Options& how) {
  Tensor w = leaf({1000}, 1, DType::bf16);
  optim::SGD sgd(std::vector{w}, how);
  for (int i = 0; i < 100; ++i) {
    w.set_grad(full({1000}, 6e-4));
    sgd.step();
  }
  return average(w);
}

void lost_updates() {
  double plain = after_100({.lr = 1, .allow_plain_half = true});
  double master = after_100({.lr = 1, .masters = true});
  double stochastic = after_100({.lr = 1, .stochastic_rounding = true});
  std::printf("       plain %.4f, master %.4f, stochastic %.4f\n", plain, master, stochastic);
  expect("plain bf16 loses all of them", plain == 1);
  expect("with masters it is 0.94 in bf16", master == double(float(bf16(0.94f))));
  expect("stochastically it is 0.94 on average", std::fabs(stochastic - 0.94) < 0.001);
  expect_error("plain bf16 must be asked for", "masters", [] { after_100({.lr = 1}); });
}

void written() {
  Tensor w = leaf({2}, 1, DType::bf16);
  optim::SGD sgd(std::vector{w}, {.lr = 1, .masters = true});
  w.set_grad(full({2}, 6e-4));
  sgd.step();
  w.span<bf16>()[0] = bf16(0.0f);  // pruned
  expect("a master takes what is written", sgd.master(0).to_vector()[0] == 0);
  expect("and keeps its fraction elsewhere", sgd.master(0).to_vector()[1] == double(1 - 6e-4f));
}

void groups() {
  Tensor w = leaf({1}, 1, DType::f32), bias = leaf({1}, 1, DType::f32);
  optim::SGD sgd(std::vector<optim::ParamGroup>{{{w}}, {{bias}, 1e-4}}, {.lr = 1e-3});
  sgd.set_lr(5e-4);
  expect("the rates of groups keep their proportion", std::fabs(sgd.lr(1) - 5e-5) < 1e-18);
}

void moments() {
  Tensor w = leaf({1}, 1, DType::bf16);
  optim::AdamW adam(std::vector{w}, {.masters = true});
  for (const auto& [name, t] : adam.state())
    if (name != "lr")
      expect((name + " is " + name_of(t.dtype())).c_str(),
             t.dtype() == (t.rank() ? DType::f32 : DType::i64));
  expect("bf16 has no 0.999: it is 1", float(bf16(0.999f)) == 1);
}

/// What decay 0.1 takes in 100 steps from a weight of 1 whose gradient is +-size by turns.
template <class Optimizer>
double taken(double size) {
  double ends[2];
  for (int with = 0; with < 2; ++with) {
    Tensor w = leaf({1}, 1, DType::f64);
    Optimizer adam(std::vector{w}, {.lr = 1e-3, .weight_decay = with * 0.1});
    for (int i = 0; i < 100; ++i) {
      w.set_grad(full({1}, i % 2 ? size : -size, DType::f64));
      adam.step();
    }
    ends[with] = w.item();
  }
  return ends[0] - ends[1];
}

void decay() {
  double loud = taken<optim::Adam>(10), soft = taken<optim::Adam>(0.1);
  double loud_w = taken<optim::AdamW>(10), soft_w = taken<optim::AdamW>(0.1);
  std::printf("       decay takes, gradients +-10 and +-0.1: Adam %.4f %.4f, AdamW %.4f %.4f\n",
              loud, soft, loud_w, soft_w);
  expect("in the gradient, Adam divides the decay by the gradient's size", soft > 50 * loud);
  expect("decoupled, it is the same for both: 1 - (1 - 1e-4)^100",
         std::fabs(loud_w - soft_w) < 1e-4 && std::fabs(loud_w - 0.00995) < 1e-4);
}

void muon() {
  Tensor g = tensor({3, 0, 0, 0.01}).reshape({2, 2});
  auto o = optim::orthogonalized(g).to_vector();
  std::printf("       singular values 3 and 0.01 become %.2f and %.2f\n", o[0], o[3]);
  expect("both directions count alike", o[0] > 0.6 && o[0] < 1.3 && o[3] > 0.6 && o[3] < 1.3);
}

int main() {
  lost_updates();
  written();
  groups();
  moments();
  decay();
  muon();
}
