#include "minim/autograd/node.h"
#include "minim/optim/clip.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using amp::GradScaler;

TEST_CASE("a scaled loss has the scaled value, and its gradients carry the scale and say so") {
  Tensor w = scalar(3);
  GradScaler scaler({.init_scale = 1024});
  Tensor loss = product(w, 2), scaled = scaler.scale(loss);
  CHECK(scaled.item() == 6 * 1024);
  CHECK(scaled.dtype() == DType::f32);
  CHECK(scaled.rank() == 0);
  scaled.backward();
  CHECK(w.grad().item() == 2048);
  CHECK(carried_scale(w.grad()) == 1024);
  CHECK(loss.item() == 6);
}

TEST_CASE("the mark survives what is done to a scaled loss") {
  Tensor w = scalar(3);
  GradScaler scaler({.init_scale = 1024});
  (scaler.scale(product(w, 2)) / 4.0 + scaler.scale(product(w, 1))).backward();
  CHECK(w.grad().item() == 1.5 * 1024);
  CHECK(carried_scale(w.grad()) == 1024);
}

TEST_CASE("S11: an f16 loss is scaled in fp32, and so is its seed") {
  Tensor w = scalar(.01, "w", DType::f16);
  GradScaler scaler;
  Tensor scaled = scaler.scale(w.reshape({}));
  CHECK(scaled.dtype() == DType::f32);
  CHECK(scaled.item() == doctest::Approx(655.5).epsilon(1e-4));
  scaled.backward();
  CHECK(w.grad().item() == 65536);
}

TEST_CASE(
    "S1: unscale, then clip, leaves a small gradient alone, and clip before unscale is an error") {
  Tensor w = tensor({0, 0}).set_requires_grad().set_name("w");
  optim::SGD opt({w}, {.lr = 1});
  GradScaler scaler;
  (scaler.scale(w * tensor({.3, .4}))).backward(ones({2}));
  says(error_of([&] { optim::clip_grad_norm(opt.parameters(), 1); }),
       "call scaler.unscale(optimizer) first");
  scaler.unscale(opt);
  CHECK(optim::clip_grad_norm(opt.parameters(), 1) == doctest::Approx(.5));
  CHECK(scaler.step(opt).stepped);
  CHECK(w.to_vector()[0] == doctest::Approx(-.3));
  CHECK(w.to_vector()[1] == doctest::Approx(-.4));
}

TEST_CASE(
    "S2: unscaling twice is an error that says which call came first, and never divides twice") {
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 4});
  scaler.scale(product(w, 1)).backward();
  scaler.unscale(opt);
  says(error_of([&] { scaler.unscale(opt); }), "unscaled already, by an earlier unscale()");
  CHECK(w.grad().item() == 1);
  // The second micro-batch after an unscale that came too early.
  says(error_of([&] { scaler.scale(product(w, 1)).backward(); }),
       "would be added to gradients with loss scale 1");
}

TEST_CASE("S3: a skip is visible: what, where, and how the scale moves") {
  Tensor w = scalar(1);
  optim::AdamW opt({w});
  GradScaler scaler;
  scaler.scale(product(w, kInf)).backward();
  amp::StepResult r = scaler.step(opt);
  CHECK(!r.stepped);
  CHECK(r.found_inf);
  CHECK(r.first_bad == "'w'");
  CHECK(r.scale_before == 65536);
  CHECK(r.scale_after == 32768);
  scaler.update();
  CHECK(scaler.scale() == 32768);
  CHECK(w.item() == 1);
  CHECK(opt.applied_steps() == 0);
}

TEST_CASE("a gradient that overflows only when it is unscaled skips the step") {
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 0x1p-20, .min_scale = 0x1p-30});
  scaler.scale(product(w, 1)).backward();
  w.grad().mul_(0x1p100).mul_(0x1p47);
  CHECK(!scaler.step(opt).stepped);
}

TEST_CASE(
    "a NaN that appears after unscale skips the step, and an inf that is clamped away after it "
    "still does") {
  for (bool clamped : {false, true}) {
    Tensor w = scalar(1);
    optim::SGD opt({w});
    GradScaler scaler;
    scaler.scale(product(w, clamped ? kInf : 1)).backward();
    scaler.unscale(opt);
    clamped ? optim::clip_grad_value(opt.parameters(), 1) : void(w.grad().fill_(kNaN));
    amp::StepResult r = scaler.step(opt);
    CHECK(!r.stepped);
    CHECK(r.first_bad == "'w'");
    CHECK(w.item() == 1);
  }
}

TEST_CASE("S5: a loss that reaches no parameter is an error of the step") {
  Tensor w = scalar(1), other = scalar(2, "other");
  optim::SGD opt({w});
  GradScaler scaler;
  scaler.scale(product(other, 1)).backward();
  says(error_of([&] { scaler.step(opt); }), "0 of 1 parameters have a gradient ('w')");
  says(error_of([&] { scaler.update(); }), "no step() or unscale()");
}

TEST_CASE("S6: an f16 parameter without a master is refused by name, with the fix") {
  Tensor w = scalar(1, "fc.weight", DType::f16);
  std::string e = error_of([&] { optim::AdamW({w}); });
  says(e, "'fc.weight' is stored in f16 (as it was made)");
  says(e, "masters = true");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(product(w, 0x1p-20)).backward();
  scaler.unscale(opt);
  CHECK(w.grad().dtype() == DType::f32);
  CHECK(w.grad().item() == 0x1p-20);
}

TEST_CASE("S9: the optimizer's own step on scaled gradients is an error") {
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(product(w, 1)).backward();
  says(error_of([&] { opt.step(); }), "still carries the loss scale 1024");
  CHECK(scaler.step(opt).stepped);
  CHECK(w.item() == doctest::Approx(1 - 1e-3));
}

TEST_CASE(
    "one injected inf in four steps: the scale is 128 * 2^3 / 2, and the weights are those without "
    "that step") {
  Tensor w = scalar(1), plain = scalar(1);
  optim::AdamW opt({w}), reference({plain});
  GradScaler scaler({.init_scale = 128, .growth_interval = 1});
  for (int i = 0; i < 4; ++i) {
    train(scaler, opt, w, i == 2 ? kInf : i + .5);
    if (i == 2) continue;
    plain.set_grad(tensor({i + .5}));
    reference.step();
  }
  CHECK(scaler.scale() == 512);
  CHECK(w.item() == plain.item());
}

TEST_CASE("two optimizers: each decides for itself, and the scale backs off once") {
  Tensor a = scalar(1, "a"), b = scalar(1, "b");
  optim::SGD first({a}), second({b});
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(product(a, 1)).backward();
  scaler.scale(product(b, kInf)).backward();
  scaler.unscale(second);
  amp::StepResult r = scaler.step(second);
  CHECK(!r.stepped);
  CHECK(r.first_bad == "'b'");
  CHECK(scaler.step(first).stepped);
  scaler.update();
  CHECK(scaler.scale() == 512);
  CHECK(a.item() < 1);
  CHECK(b.item() == 1);
}

TEST_CASE("accumulation: the scale stays until the step, and the sum is unscaled once") {
  Tensor w = scalar(0);
  optim::SGD opt({w}, {.lr = 1});
  GradScaler scaler({.init_scale = 256, .growth_interval = 1});
  for (double slope : {1.0, 2.0}) scaler.scale(product(w, slope) / 2.0).backward();
  CHECK(w.grad().item() == 1.5 * 256);
  CHECK(scaler.step(opt).stepped);
  scaler.update();
  CHECK(w.item() == -1.5);
  CHECK(scaler.scale() == 512);
}

TEST_CASE("L6: 1024 gradients of 1 into a bf16 parameter are 1024") {
  Tensor w = scalar(1, "w", DType::bf16);
  for (int i = 0; i < 1024; ++i) product(w, 1).backward();
  CHECK(w.grad().item() == 1024);
  CHECK(w.grad().dtype() == DType::f32);
}
