#include <optional>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/optim/ema.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/optim/muon.h"
#include "minim/tests/full_memory.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("an average of weights follows its formula with a decay that rises to its own") {
  Tensor w = parameter({1, -2}, DType::f64, "w");
  optim::SGD opt({w}, {.lr = 1});
  optim::Ema ema(opt, .5);
  Values want{1, -2};
  for (int n = 0; n < 20; ++n) {
    set_grad(w, {.25, -.5});
    opt.step();
    ema.update();
    double d = std::min(.5, (1. + n) / (10. + n));
    for (size_t i = 0; i < 2; ++i) want[i] = d * want[i] + (1 - d) * w.to_vector()[i];
  }
  check_near(ema.state()[1].second.to_vector(), want, 1e-15);
  CHECK(ema.state()[1].first == "w.ema");
  CHECK(ema.state()[0].second.item() == 20);
  for (double bad : {-.1, 1., kNaN})
    says(error_of([&] { optim::Ema(opt, bad); }), "[Ema] decay must be in [0, 1)");
}

TEST_CASE("L4: an average is taken in fp32 from the masters and not from their 16-bit roundings") {
  Tensor w = parameter({1}, DType::bf16, "w");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  optim::Ema ema(opt, 0);
  set_grad(w, {6e-4});
  opt.step();
  ema.update();
  Tensor average = ema.state()[1].second;
  CHECK(average.dtype() == DType::f32);
  CHECK(average.item() == opt.master(0).item());
  CHECK(average.item() != w.item());
  Tensor plain = parameter({1}, DType::bf16);  // without masters, from what there is
  optim::SGD rounding({plain}, {.stochastic_rounding = true});
  CHECK(optim::Ema(rounding, .9).state()[1].second.dtype() == DType::f32);
}

TEST_CASE("a region, and the casts that it overrides, do not reach the arithmetic of optimizers") {
  auto run = [](bool inside) {
    Tensor w = full({3, 2}, 1. / 3).set_requires_grad();
    optim::Muon opt({w}, {.lr = .02});
    optim::Ema ema(opt, .5);
    std::optional<amp::Autocast> on;
    using enum Cast;
    if (inside)
      on.emplace(DType::f16,
                 std::initializer_list<amp::Override>{
                     {Op::mul, lower}, {Op::add, lower}, {Op::sub, lower}, {Op::div, lower}});
    for (double k : {1., 3.}) {
      w.set_grad(arange(6).to(DType::f32).reshape({3, 2}) * k);
      opt.step();
      ema.update();
    }
    on.reset();
    Values all = w.to_vector(), averages = ema.state()[1].second.to_vector();
    all.insert(all.end(), averages.begin(), averages.end());
    return all;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("averages stand in the model while they are swapped in and the weights come back") {
  for (DType d : {DType::f32, DType::bf16}) {
    Tensor w = parameter({1, 3}, d, "w");
    optim::AdamW opt({w}, {.lr = .5, .masters = d == DType::bf16});
    optim::Ema ema(opt, .9);
    for (int i = 0; i < 3; ++i) {
      set_grad(w, {1, -1});
      opt.step();
      ema.update();
    }
    Values weights = w.to_vector(), averages = ema.state()[1].second.to_vector();
    uint64_t version = w.version();
    try {
      auto swapped = ema.swap();
      CHECK(w.to_vector() == tensor(averages, {2}, d).to_vector());
      CHECK(w.to_vector() != weights);
      CHECK(w.version() > version);  // an autocast copy of the weights is stale
      version = w.version();
      fail("an error in between");
    } catch (const Error&) {
    }
    CHECK(w.to_vector() == weights);
    CHECK(w.version() > version);
  }
}

TEST_CASE("a saved average goes on bit for bit") {
  Tensor w = parameter({1, -2}, DType::f32, "w");
  optim::SGD opt({w}, {.lr = .1});
  optim::Ema one(opt, .99), two(opt, .99);
  auto step = [&](double g, std::initializer_list<optim::Ema*> all) {
    set_grad(w, {g, 1});
    opt.step();
    for (optim::Ema* e : all) e->update();
  };
  for (int i = 0; i < 7; ++i) step(i, {&one});
  std::vector<optim::NamedState> saved;
  for (const auto& [name, t] : one.state()) saved.emplace_back(name, t.clone());
  two.load_state(saved);
  for (int i = 0; i < 7; ++i) step(i, {&one, &two});
  CHECK(one.state()[1].second.to_vector() == two.state()[1].second.to_vector());
  CHECK(two.state()[0].second.item() == 14);
  saved.pop_back();
  says(error_of([&] { two.load_state(saved); }), "w.ema is missing");
}

TEST_CASE(
    "gradient statistics tell norm and largest and share that is not zero and what is not finite") {
  Tensor a = parameter({0, 0, 0, 0}, DType::bf16, "a"), b = parameter({0, 0, 0}),
         c = parameter({0});
  a.set_grad(tensor({3, 0, -4, 0}, DType::bf16));
  set_grad(b, {kInf, kNaN, -2});
  auto all = optim::gradient_statistics(std::vector<Tensor>{a, c, b});
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == "a");
  CHECK(all[0].norm == 5);
  CHECK(all[0].max_abs == 4);
  CHECK(all[0].nonzero_share == .5);
  CHECK(all[0].nonfinite == 0);
  CHECK(all[1].name == "2");
  CHECK(all[1].norm == 2);
  CHECK(all[1].max_abs == 2);
  CHECK(all[1].nonzero_share == 1);
  CHECK(all[1].nonfinite == 2);
  set_carried_scale(a.grad(), 8);
  says(error_of([&] { optim::gradient_statistics(std::vector<Tensor>{a}); }),
       "'a' still carries the loss scale 8");
}

TEST_CASE(
    "averages that stand in for a weight are not swapped over by others, whose end would keep "
    "them") {
  Tensor w = parameter({1}, DType::f32, "w"), v = parameter({5}, DType::f32, "v");
  optim::SGD opt({w}, {.lr = 1}), both({v, w}, {.lr = 1});
  optim::Ema one(opt, .5), two(opt, .9), other(both, .5);
  set_grad(w, {1});
  opt.step();
  one.update(), two.update();
  const double weight = w.item();
  const uint64_t version = v.version();
  std::optional<optim::Ema::Swap> first(std::in_place, one);
  for (const optim::Ema* ema : {&two, &one, &other})
    says(error_of([&] { ema->swap(); }), "[Ema::swap] averages stand in for ");
  CHECK(v.version() == version);
  set_grad(w, {1});
  says(error_of([&] { both.step(); }), "averages stand in for the weights");
  first.reset();
  CHECK(w.item() == weight);
  std::optional<optim::Ema::Swap> again(std::in_place, two);
  again.reset();
  CHECK(w.item() == weight);
  CHECK(both.step().stepped);
}

// Sanitizers end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a swap that memory does not suffice for leaves the weights" *
          doctest::test_suite("host")) {
  std::vector<Tensor> params;
  for (int i = 0; i < 4; ++i) params.push_back(full({1 << 20}, 1).set_requires_grad());
  optim::SGD opt(params, {.lr = 1});
  const optim::Ema ema(opt, .9);
  {
    NoGrad no_recording;
    for (Tensor& p : params) p.fill_(2);
  }
  CHECK(whole_or_refused([&] { ema.swap(); },
                         [&] {
                           for (const Tensor& p : params)
                             if (std::as_const(p).span<float>()[7] != 2) return false;
                           for (const Tensor& p : params) p.set_grad(zeros(p.shape()));
                           return opt.step().stepped;
                         }));
}
#endif
