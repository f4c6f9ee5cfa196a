#include "minim/autograd/checkpoint.h"
#include "minim/autograd/node.h"
#include "minim/ops/composite.h"
#include "minim/optim/clip.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using amp::GradScaler;

namespace {

/// A parameter with gradient 2, scaled by 1024.
struct Scaled {
  Tensor w = scalar(3);
  GradScaler scaler{{.init_scale = 1024}};
  optim::SGD opt{{w}, {.lr = 1}};
  Scaled() { scaler.scale(product(w, 2)).backward(); }
  /// What is refused on gradients that carry a scale.
  void refused() {
    says(error_of([&] { opt.step(); }), "loss scale");
    says(error_of([&] { optim::clip_grad_norm(opt.parameters(), 1); }), "loss scale");
    says(error_of([&] { optim::clip_grad_value(opt.parameters(), 1); }), "loss scale");
    says(error_of([&] { optim::gradient_statistics(opt.parameters()); }), "loss scale");
    CHECK(w.item() == 3);
  }
};

}  // namespace

TEST_CASE("a sum of a scaled loss and another is an error where their gradients meet") {
  const Tensor w = scalar(3), v = scalar(5, "v");
  GradScaler scaler({.init_scale = 1024});
  const std::string e = error_of([&] { (scaler.scale(product(w, 2)) + product(w, 1)).backward(); });
  says(e, "1024");
  says(e, "scaler.scale(a + b)");
  CHECK(!w.grad().defined());
  const Tensor trunk = product(v, 2);
  says(error_of([&] { (scaler.scale(trunk * 1.0) + trunk * 2.0).backward(); }), "1024");
  CHECK(!v.grad().defined());
}

TEST_CASE("a sum of a scaled loss and another marks what the scaled one made alone") {
  const Tensor w = scalar(3), v = scalar(5, "v");
  GradScaler scaler({.init_scale = 1024});
  optim::SGD both({w, v}), scaled({w}, {.lr = 1}), plain({v}, {.lr = 1});
  (scaler.scale(product(w, 2)) + product(v, 3)).backward();
  CHECK(w.grad().item() == 2048);
  CHECK(v.grad().item() == 3);
  says(error_of([&] { scaler.unscale(both); }), "'v'");
  scaler.step(scaled);
  plain.step();
  CHECK(w.item() == 1);
  CHECK(v.item() == 2);
}

TEST_CASE("a loss that is scaled twice is refused by both scales") {
  const Tensor w = scalar(3);
  GradScaler scaler({.init_scale = 1024});
  optim::SGD opt({w});
  scaler.scale(scaler.scale(product(w, 2))).backward();
  says(error_of([&] { scaler.step(opt); }), "1.04858e+06");
  says(error_of([&] { optim::clip_grad_norm(opt.parameters(), 1); }), "1.04858e+06");
}

TEST_CASE("two scalers in one graph each mark what is theirs, and do not mix") {
  const Tensor w = scalar(3), v = scalar(5, "v");
  GradScaler a({.init_scale = 1024}), b({.init_scale = 8});
  optim::SGD first({w}, {.lr = 1}), second({v}, {.lr = 1});
  (a.scale(product(w, 2)) + b.scale(product(v, 3))).backward();
  CHECK(w.grad().item() == 2048);
  CHECK(v.grad().item() == 24);
  a.step(first), b.step(second);
  CHECK(w.item() == 1);
  CHECK(v.item() == 2);
  const Tensor x = scalar(1);
  says(error_of([&] { (a.scale(product(x, 2)) + b.scale(product(x, 3))).backward(); }), "1024");
  CHECK(!x.grad().defined());
}

TEST_CASE("what is computed from a scaled gradient carries the scale") {
  {
    Scaled s;
    s.w.set_grad(s.w.grad() * 0.5);
    s.refused();
    s.scaler.step(s.opt);
    CHECK(s.w.item() == 2);
  }
  for (bool recording : {false, true}) {
    for (auto change :
         {+[](const Tensor& g) { return g.detach(); }, +[](const Tensor& g) { return g.clone(); },
          +[](const Tensor& g) {
            return g.reshape({1, 1}).select(0, 0);
          },
          +[](const Tensor& g) { return g.to(DType::f64); },
          +[](const Tensor& g) { return g / 2.0; },
          +[](const Tensor& g) { return 0.5 * g + g / 2.0; },
          +[](const Tensor& g) {
            return cat({g, g}).slice(0, 1, 2);
          },
          +[](const Tensor& g) { return -g; }}) {
      Scaled s;
      {
        GradScope mode(recording);
        s.w.set_grad(change(s.w.grad()));
      }
      s.refused();
    }
  }
  Scaled s;
  const Tensor g = s.w.grad();
  s.w.set_grad(g * g / g / 1024.0 * 1024.0);
  s.scaler.step(s.opt);
  CHECK(s.w.item() == 1);
}

TEST_CASE("a gradient made of scaled and other values is refused") {
  for (auto change : {+[](const Tensor&g, const Tensor&w) { return g + w.detach() * 0.1; },
                      +[](const Tensor&g, const Tensor&) { return clamp(g, {.lo = -1, .hi = 1}); },
                      +[](const Tensor&g, const Tensor&) { return g * (1.0 / (norm(g) + 1e-6)); },
                      +[](const Tensor&g, const Tensor&) { return exp(g); }}) {
    Scaled s;
    const Tensor made = change(s.w.grad(), s.w);
    const std::string e = error_of([&] { s.w.set_grad(made); });
    says(e, "loss scale");
    says(e, "scaler.unscale(optimizer)");
    CHECK(s.w.grad().item() == 2048);
  }
  Scaled s;
  s.scaler.unscale(s.opt);
  s.w.set_grad(clamp(s.w.grad(), {.lo = -1, .hi = 1}));
  CHECK(s.scaler.step(s.opt).stepped);
  CHECK(s.w.item() == 2);
}

TEST_CASE("a scaled gradient that is changed in place keeps its mark, and takes nothing unscaled") {
  Scaled s;
  Tensor g = s.w.grad();
  g.mul_(0.5);
  g.slice(0, 0, 1).mul_(2.0);
  s.refused();
  says(error_of([&] { g.add_(1.0); }), "loss scale");
  says(error_of([&] { g.add_(1); }), "loss scale");
  says(error_of([&] { g.add_(tensor({true}, DType::boolean)); }), "loss scale");
  says(error_of([&] { s.w.set_grad(minimum(g, 1)); }), "fits no scale");
  says(error_of([&] { g.copy_(ones({1})); }), "loss scale");
  says(error_of([&] { g.select(0, 0).fill_(1); }), "loss scale");
  CHECK(g.item() == 2048);
  g.select(0, 0).zero_();  // nothing is nothing at any scale
  s.refused();
  Scaled other;
  Tensor room = zeros({1}), rooms = zeros({2});
  room.copy_(other.w.grad());
  other.w.set_grad(room);
  other.refused();
  says(error_of([&] { rooms.slice(0, 0, 1).copy_(other.w.grad()); }), "loss scale");
}

TEST_CASE("a gradient divided by its own norm carries no scale: the error says to unscale before") {
  auto normalise = [](const Tensor& w) { w.set_grad(w.grad() / norm(w.grad())); };
  Scaled s;
  normalise(s.w);
  for (const std::string& e :
       {error_of([&] { s.scaler.step(s.opt); }), error_of([&] { s.scaler.unscale(s.opt); })})
    says(e, "as g / norm(g), carries none: call scaler.unscale(optimizer) before you make it");
  Scaled other;
  other.scaler.unscale(other.opt);
  normalise(other.w);
  other.scaler.step(other.opt);
  CHECK(other.w.item() == 3 - 1);
}

TEST_CASE("what a hook keeps of a scaled gradient carries the scale") {
  const Tensor w = scalar(3), y = w * 2.0;
  GradScaler scaler({.init_scale = 1024});
  std::vector<Tensor> kept;
  for (const Tensor& t : {w, y})
    t.register_hook([&](const Tensor& g) { return kept.push_back(g), Tensor(); });
  scaler.scale(sum(y)).backward();
  REQUIRE(kept.size() == 2);
  for (const Tensor& g : kept) {
    w.set_grad(g);
    says(error_of([&] { optim::SGD({w}).step(); }), "still carries the loss scale 1024");
  }
}

TEST_CASE("backward from a scaled gradient scales what it makes") {
  const Tensor w = scalar(3), w2 = scalar(5);
  GradScaler scaler({.init_scale = 1024});
  optim::SGD both({w, w2}, {.lr = 1});
  const Tensor h = w * 2.0, leaf = h.detach().clone().set_requires_grad();
  scaler.scale(sum(leaf * w2)).backward();
  h.backward(leaf.grad());
  says(error_of([&] { optim::SGD({w}).step(); }), "still carries the loss scale 1024");
  scaler.step(both);
  CHECK(w.item() == 3 - 10);
  CHECK(w2.item() == 5 - 6);
  says(error_of([&] { w.backward(leaf.grad() + ones({1})); }), "fits no scale");
}

TEST_CASE("a hook gives back a gradient of the scale that it got, or it is an error") {
  GradScaler scaler({.init_scale = 1024});
  for (bool inner : {false, true}) {
    CAPTURE(inner);
    const auto of = [&](auto hook) {
      const Tensor leaf = scalar(3), y = leaf * 2.0;
      (inner ? y : leaf).register_hook(hook);
      scaler.scale(sum(y)).backward();
      return leaf.grad().item() / 1024;
    };
    CHECK(of([](const Tensor& g) { return g * 0.5; }) == 1);
    says(error_of([&] { of([](const Tensor& g) { return g / norm(g) * 0.5; }); }), "scaler.scale(");
    says(error_of([&] { of([](const Tensor&) { return ones({1}); }); }), "no loss scale;");
    says(error_of([&] { of([](const Tensor& g) { return clamp(g, {-1, 1}); }); }), "mixture");
    CHECK(of([&](const Tensor& g) { return scaler.scale(g / norm(g) * 0.5); }) ==
          (inner ? 1 : 0.5));
  }
}

TEST_CASE("a loss is not scaled inside a checkpointed function") {
  const Tensor w = scalar(3);
  GradScaler scaler({.init_scale = 1024});
  const auto f = [&](const Tensor& x) { return scaler.scale(x * w); };
  says(error_of([&] { autograd::checkpoint(f, ones({1})); }), "checkpoint()");
}

TEST_CASE("a scaled sum through a checkpoint marks every leaf in it") {
  const Tensor w = scalar(3), v = scalar(5, "v");
  GradScaler scaler({.init_scale = 1024});
  optim::SGD opt({w}, {.lr = 1});
  const auto f = [&](const Tensor& x) { return x * w; };
  (scaler.scale(sum(autograd::checkpoint(f, ones({1})))) + sum(v)).backward();
  CHECK(v.grad().item() == 1);
  optim::SGD({v}).step();
  scaler.step(opt);
  CHECK(w.item() == 2);
}
