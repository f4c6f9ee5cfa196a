#include <set>

#include "minim/models/module.h"
#include "minim/optim/clip.h"
#include "minim/optim/ema.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using optim::Options;

TEST_CASE(
    "L1: a master keeps updates that bf16 loses, and plain 16-bit parameters are refused unless "
    "asked for") {
  auto drift = [](Options o) {
    o.lr = 1;
    return run(optim::kSGD, o, DType::bf16, {1}, std::vector<Values>(100, {6e-4}))[0];
  };
  CHECK(drift({.masters = true}) == doctest::Approx(.94).epsilon(.003));
  CHECK(drift({.allow_plain_half = true}) == 1);
  Tensor w = parameter({1}, DType::bf16, "fc.weight");
  std::string e = error_of([&] { optim::SGD({w}); });
  says(e, "'fc.weight' is stored in bf16");
  says(e, "masters = true");
  says(error_of([&] { optim::SGD({w}, {.masters = true, .stochastic_rounding = true}); }),
       "choose one");
}

TEST_CASE("L1: the master is exact to fp32 and the parameter is its rounding") {
  Tensor w = parameter({1}, DType::bf16, "w");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  for (int i = 0; i < 100; ++i) {
    set_grad(w, {6e-4});
    opt.step();
  }
  CHECK(opt.master(0).item() == doctest::Approx(.94).epsilon(5e-6));
  CHECK(w.item() == double(float(bf16(opt.master(0).item()))));
  opt.set_master(0, tensor({1.001}));
  CHECK(opt.master(0).item() == double(1.001f));
  CHECK(w.item() == 1);
}

TEST_CASE("L2: norm gains in bf16 move and decay through their master") {
  Tensor w = parameter(Values(8, 1), DType::bf16);
  optim::AdamW opt({w}, {.lr = 1e-4, .weight_decay = .1, .masters = true});
  for (int i = 0; i < 1000; ++i) {
    set_grad(w, Values(8, 1));
    opt.step();
  }
  double want = 1;  // with a constant gradient each step is lr
  for (int i = 0; i < 1000; ++i) want = want * (1 - 1e-5) - 1e-4;
  CHECK(opt.master(0).to_vector()[3] == doctest::Approx(want).epsilon(1e-4));
  CHECK(w.to_vector()[3] == double(float(bf16(opt.master(0).to_vector()[3]))));
}

TEST_CASE("L3: counters are int64 and count applied steps only, moments and masters are fp32") {
  Tensor w = parameter({1}, DType::bf16, "w");
  optim::AdamW opt({w}, {.masters = true});
  for (int i = 0; i < 300; ++i) {
    set_grad(w, {i % 3 == 2 ? std::nan("") : 1.0});
    opt.step();
  }
  CHECK(opt.applied_steps() == 200);
  for (const auto& [name, t] : opt.state()) {
    CAPTURE(name);
    bool counts = name.ends_with("step") || name == "applied_steps";
    CHECK(t.dtype() == (counts ? DType::i64 : name == "lr" ? DType::f64 : DType::f32));
    if (counts) CHECK(t.item() == 200);
  }
  Tensor x = parameter({1}, DType::f64);
  for (const auto& [name, t] : optim::AdamW({x}).state()) CHECK(t.dtype() != DType::f32);
}

TEST_CASE(
    "stochastic rounding of bf16 is right in the mean, repeatable, and different for another seed "
    "or step") {
  Values p0(4096, 1), g(4096, 1e-3);
  auto stepped = [&](uint64_t seed, int steps) {
    Options o{.lr = 1, .stochastic_rounding = true, .seed = seed};
    return run(optim::kSGD, o, DType::bf16, p0, std::vector<Values>(size_t(steps), g));
  };
  Values once = stepped(1, 1);
  double mean = 0;
  for (double v : once) {
    CHECK((v == 1 || v == 0.99609375));
    mean += v / 4096;
  }
  CHECK(mean == doctest::Approx(.999).epsilon(1e-4));
  CHECK(once == stepped(1, 1));
  CHECK(once != stepped(2, 1));
  mean = 0;
  for (double v : stepped(1, 50)) mean += v / 4096;
  CHECK(mean == doctest::Approx(.95).epsilon(5e-4));
  says(error_of([&] { run(optim::kSGD, {.stochastic_rounding = true}, DType::f16); }),
       "set masters = true");
}

TEST_CASE(
    "saved state goes into another optimizer bit for bit, and foreign state changes nothing") {
  auto make = [](const Tensor& w) { return optim::AdamW({w}, {.masters = true}); };
  Tensor w = parameter({1, 2}, DType::bf16, "w"), again = parameter({1, 2}, DType::bf16, "w");
  auto one = make(w), two = make(again);
  set_grad(w, {.1, -.3});
  one.step();
  std::vector<optim::NamedState> saved;
  for (const auto& [name, t] : one.state()) saved.emplace_back(name, t.clone());
  two.load_state(saved);
  copy_elements(w, again);
  for (const Tensor& t : {w, again}) set_grad(t, {.2, .7});
  one.step();
  two.step();
  for (size_t k = 0; k < saved.size(); ++k) {
    CAPTURE(saved[k].first);
    CHECK(one.state()[k].second.to_vector() == two.state()[k].second.to_vector());
  }
  saved.back().first = "w.other";
  saved[0].second = zeros({2}, DType::i64);
  std::string e = error_of([&] { two.load_state(saved); });
  says(e, "w.other is not expected");
  says(e, "w.exp_avg_sq is missing");
  says(e, "applied_steps is i64(2), expected i64()");
  CHECK(two.applied_steps() == 2);
}

TEST_CASE("the rate is part of the state, and a state from before it was is taken without") {
  Tensor a = parameter({1}), b = parameter({1});
  auto make = [&](double lr) {
    return optim::SGD(std::vector<optim::ParamGroup>{{{a}}, {{b}, 4 * lr}}, {.lr = lr});
  };
  auto one = make(.125), two = make(.5);
  one.set_lr(.25);
  std::vector<optim::NamedState> saved;
  for (const auto& [name, t] : one.state()) saved.emplace_back(name, t.clone());
  two.load_state(saved);
  CHECK(two.lr(0) == .25);
  CHECK(two.lr(1) == 1);
  std::erase_if(saved, [](const auto& s) { return s.first == "lr"; });
  two.set_lr(2);
  two.load_state(saved);
  CHECK(two.lr(1) == 8);
}

TEST_CASE("a step bumps the version of what it changes, and of nothing else") {
  Tensor a = parameter({1}), b = parameter({1});
  optim::SGD opt(std::vector<Tensor>{a, b});
  set_grad(a, {1});
  uint64_t va = a.version(), vb = b.version();
  opt.step();
  CHECK(a.version() == va + 1);
  CHECK(b.version() == vb);
}

TEST_CASE("parameters of one name have states of their own, also beside a number that is a name") {
  Tensor p[] = {parameter({1}, DType::f32, "weight"), parameter({2}, DType::f32, "1"),
                parameter({3}, DType::f32, "weight"), parameter({4}),
                parameter({5}, DType::f32, "3")};
  const std::vector<Tensor> all(p, p + 5);
  optim::AdamW one(all), two(all);
  for (size_t i = 0; i < 5; ++i) set_grad(p[i], {double(i + 1)});
  one.step();
  std::set<std::string> names;
  std::vector<optim::NamedState> saved;
  for (const auto& [name, t] : one.state()) {
    CHECK(names.insert(name).second);
    saved.emplace_back(name, t.clone());
  }
  for (const char* name :
       {"weight.exp_avg", "1.exp_avg", "weight#2.exp_avg", "3.exp_avg", "3#4.exp_avg"})
    CHECK(names.contains(name));
  two.load_state(saved);
  for (size_t k = 0; k < saved.size(); ++k)
    CHECK(two.state()[k].second.to_vector() == one.state()[k].second.to_vector());
  names.clear();
  for (const auto& [name, t] : optim::Ema(one, .5).state()) CHECK(names.insert(name).second);
  names.clear();
  for (const auto& s : optim::gradient_statistics(all)) CHECK(names.insert(s.name).second);
  saved.push_back(saved.back());
  says(error_of([&] { two.load_state(saved); }), "3#4.exp_avg_sq is given twice");
}

TEST_CASE("a saved state with a rate or a count that no optimizer has is refused") {
  Tensor w = parameter({1}, DType::f32, "w");
  optim::SGD opt({w}, {.lr = .5});
  auto with = [&](const char* name, double v) {
    std::vector<optim::NamedState> saved;
    for (const auto& [n, t] : opt.state())
      saved.emplace_back(n, n == name ? full({}, v, t.dtype()) : t.clone());
    return error_of([&] { opt.load_state(saved); });
  };
  for (double bad : {kNaN, kInf, -1.})
    says(with("lr", bad), "[sgd] the saved lr must be in [0, inf), not ");
  says(with("lr", 1e39), "[sgd] the saved lr = 1e+39 is inf in f32");
  says(with("applied_steps", -1), "applied_steps is below 0");
  says(with("w.step", -1), "w.step is below 0");
  CHECK(opt.lr() == .5);
  CHECK(with("lr", .25) == "no error");
  CHECK(opt.lr() == .25);
}

TEST_CASE("options that f32 makes inf or 0 of are refused where parameters are updated in it") {
  for (DType d : {DType::f32, DType::bf16, DType::f64}) {
    Tensor w = parameter({1}, d, "w");
    auto refused = [&](optim::Options o) {
      o.masters = d == DType::bf16;
      return error_of([&] { optim::AdamW({w}, o); });
    };
    const auto check = [&](const std::string& got, const char* want) {
      says(got, d == DType::f64 ? "no error" : want);
    };
    check(refused({.lr = 1e39}), "[adamw] lr = 1e+39 is inf in f32");
    check(refused({.eps = 1e-50}), "[adamw] eps = 1e-50 is 0 in f32");
    check(refused({.weight_decay = 1e39}), "[adamw] weight_decay = 1e+39 is inf in f32");
    check(refused({.lr = 1e-50}), "[adamw] lr = 1e-50 is 0 in f32");
    CHECK(refused({.lr = 0, .eps = 0}) == "no error");
    check(error_of([&] { optim::SGD({w}, {.momentum = 1e39, .masters = d == DType::bf16}); }),
          "[sgd] momentum = 1e+39 is inf in f32");
    optim::Optimizer opt(optim::kSGD, {{{w}, 2.}}, {.lr = 1, .masters = d == DType::bf16});
    check(error_of([&] { opt.set_lr(3e38); }), "[sgd] a group's lr = 6e+38 is inf in f32");
    check(error_of([&] { opt.set_lr(1e-50); }), "[sgd] a group's lr = 2e-50 is 0 in f32");
  }
}

TEST_CASE("a step refuses to multiply gradients by NaN, by inf or by less than 0") {
  Tensor w = parameter({1}, DType::f32, "w");
  optim::SGD opt({w}, {.lr = 1});
  amp::GradScaler scaler({.enabled = false});
  for (double bad : {kNaN, kInf, -1.}) {
    set_grad(w, {1});
    says(error_of([&] { scaler.step(opt, bad); }), "[GradScaler::step] clip is ");
    says(error_of([&] { opt.step({.clip = bad}); }), "[sgd] clip is ");
  }
  CHECK(w.item() == 1);
  CHECK(scaler.step(opt, .5).stepped);
  CHECK(w.item() == .5);
}

TEST_CASE("what an op made is refused as a parameter, by optimizers, clipping and modules") {
  Tensor w = parameter({1}, DType::f32, "w"), made = w * 2;
  const std::vector<Tensor> all{w, made};
  for (const std::function<void()>& act : std::vector<std::function<void()>>{
           [&] { optim::SGD{all}; }, [&] { optim::clip_grad_norm(all, 1); },
           [&] { optim::clip_grad_value(all, 1); }, [&] { optim::grad_norm(all); },
           [&] { optim::gradient_statistics(all); }}) {
    const std::string error = error_of(act);
    says(error, "can't optimize a tensor that an op made: parameter 1 is the result of mul");
    says(error, ".detach().set_requires_grad()");
  }
  struct Uses : models::Module {
    explicit Uses(Tensor t) : weight(t) { parameter("weight", weight); }
    Tensor weight;
  };
  says(error_of([&] { Uses{made}; }), "parameter 'weight' is the result of mul");
  CHECK(Uses(made.detach().set_requires_grad()).weight.requires_grad());
}
