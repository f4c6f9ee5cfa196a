#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/autograd/node.h"
#include "minim/core/parallel.h"
#include "minim/core/random.h"
#include "minim/optim/clip.h"
#include "minim/optim/optimizer.h"
#include "minim/optim/schedule.h"

using namespace minim;
using optim::Options;

namespace {

using Values = std::vector<double>;

Tensor parameter(const Values& v, DType d = DType::f32, const char* name = "") {
  Tensor p = tensor(v, {Index(v.size())}, d);
  return p.set_requires_grad().set_name(name);
}

void set_grad(const Tensor& p, const Values& g) {
  p.set_grad(tensor(g, p.shape(), p.dtype() == DType::f64 ? DType::f64 : DType::f32));
}

const std::vector<Values> kGradients{
    {.1, -.2, .3, 0}, {.05, .4, -.6, 1e-4}, {-1, 2, -3, 1e-8}, {.1, -.2, .3, 0}, {10, 0, 1e-3, -5}};

Values run(const optim::Rule& rule, const Options& options, DType d, Values p0 = {1, -2, 3, .5},
           const std::vector<Values>& gradients = kGradients) {
  Tensor p = parameter(p0, d);
  optim::Optimizer opt(rule, {{{p}, {}, {}}}, options);
  for (const Values& g : gradients) {
    set_grad(p, g);
    CHECK(opt.step().stepped);
  }
  return p.to_vector();
}

void check_close(const Values& got, const Values& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i])));
}

std::string error_of(auto&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
bool says(const std::string& text, const char* part) {
  INFO(text);
  bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

Tensor state_of(const optim::Optimizer& opt, const std::string& name) {
  for (const auto& [n, t] : opt.state())
    if (n == name) return t;
  return {};
}

}  // namespace

TEST_CASE("AdamW in f64 equals the published steps") {
  const std::vector<Values> want{
      {0.8990000099999991, -1.8980000049999997, 2.897000003333333, 0.4995},
      {0.8048830579018708, -1.9327123565410367, 2.930713355261886, 0.42459733720861415},
      {0.8595653845176224, -1.9992952652806513, 2.9962982631957096, 0.366654319175409},
      {0.8981846343080739, -2.0475067814745613, 3.0435127765542314, 0.3191733390732837},
      {0.8463674614145447, -2.087898859781167, 3.0828911678296906, 0.3734022950650344}};
  Tensor p = parameter({1, -2, 3, .5}, DType::f64);
  optim::AdamW opt({p}, {.lr = .1});
  for (size_t t = 0; t < want.size(); ++t) {
    set_grad(p, kGradients[t]);
    opt.step();
    check_close(p.to_vector(), want[t], 2e-16);
  }
  check_close(state_of(opt, "0.exp_avg").to_vector(),
              {0.9382059999999998, 0.16003799999999996, -0.23995699999999998, -0.4999927091899999},
              2e-16);
  check_close(
      state_of(opt, "0.exp_avg_sq").to_vector(),
      {0.1010204435674576, 0.004231324719680044, 0.009520481619280097, 0.025000000009970054},
      1e-17);
}

TEST_CASE("AdamW equals the published result without decay, with other constants, and in f32") {
  check_close(run(optim::kAdamW, {.lr = .1, .weight_decay = 0}, DType::f64),
              {0.850829094501272, -2.097776374189464, 3.097758692228036, 0.37551222006049173},
              2e-16);
  check_close(run(optim::kAdamW, {.lr = .1, .betas = {.8, .95}, .eps = 1e-3, .weight_decay = .1},
                  DType::f64),
              {0.8085081855143903, -2.0096947636913045, 2.9605972622592978, 0.5286281504135655},
              2e-16);
  check_close(run(optim::kAdamW, {.lr = .1}, DType::f32),
              {0.8463674783706665, -2.0878989696502686, 3.0828912258148193, 0.37340229749679565},
              1e-7);
}

TEST_CASE("Adam with decay in the gradient and SGD with nesterov equal the published results") {
  const std::vector<Values> g{{.1, -.2}, {.3, .4}};
  check_close(run(optim::kAdam, {.lr = .1, .weight_decay = .1}, DType::f64, {1, -2}, g),
              {.8032147551675831, -1.87528316883678}, 2e-15);
  check_close(run(optim::kSGD, {.lr = .1, .momentum = .9, .nesterov = true, .weight_decay = .01},
                  DType::f64, {1, -2}, g),
              {.91132971, -2.01265942}, 1e-15);
  check_close(run(optim::kSGD, {.lr = .1}, DType::f64, {1, -2}, g), {.96, -2.02}, 1e-15);
}

TEST_CASE(
    "a fused step equals the reference bit for bit, scaled or not, clipped or not, however "
    "parameters are kept") {
  constexpr Index n = 40001;  // several chunks and a tail
  for (const optim::Rule* rule : {&optim::kSGD, &optim::kAdamW})
    for (double scale : {1.0, 1000.0})
      for (double clip : {1.0, 0.3})
        for (int kept = 0; kept < 4; ++kept) {
          Options o{.lr = .01, .weight_decay = .1};
          if (!rule->adaptive) o.momentum = .9;
          o.masters = kept == 1;
          o.stochastic_rounding = kept == 2;
          DType d = kept == 0 ? DType::f32 : kept == 3 ? DType::f64 : DType::bf16;
          std::array<Values, 2> after;
          for (bool fused : {false, true}) {
            set_threads(fused ? 3 : 1);
            o.fused = fused;
            Tensor p = empty({n}, d), g = empty({n}, d == DType::f64 ? d : DType::f32);
            for (Index i = 0; i < n; ++i) {
              auto r = Philox::block(1, 2, uint64_t(i));
              double v[] = {uniform01(r[0]) - .5, (uniform01(r[1]) - .5) * scale};
              store_run(advance(p.data(), d, i), d, 1, 1, &v[0]);
              store_run(advance(g.data(), g.dtype(), i), g.dtype(), 1, 1, &v[1]);
            }
            optim::Optimizer opt(*rule, {{{p}, {}, {}}}, o);
            for (int t = 0; t < 3; ++t) {
              p.set_grad(g);
              autograd_of(p).scale = scale;
              CHECK(opt.step({.scale = scale, .clip = clip}).stepped);
            }
            after[fused] = p.to_vector();
            for (const auto& [name, t] : opt.state())
              for (double v : t.to_vector()) after[fused].push_back(v);
          }
          set_threads(0);
          CAPTURE(kept);
          CAPTURE(scale);
          CHECK(after[0] == after[1]);
        }
}

TEST_CASE(
    "a step that unscales and clips by itself equals unscaling and clipping before it, bit for "
    "bit") {
  Values g(1000);
  for (size_t i = 0; i < g.size(); ++i) g[i] = 100 * std::sin(double(i));
  std::array<Values, 2> after;
  for (int fused : {0, 1}) {
    Tensor p = parameter(Values(1000, 1));
    optim::AdamW opt({p});
    set_grad(p, g);
    if (fused) autograd_of(p).scale = 1000;
    if (!fused) {
      amp::multiply(amp::dense_gradients(opt.parameters()), amp::inverse_of(1000));
      amp::multiply(amp::dense_gradients(opt.parameters()), .37);
    }
    fused ? opt.step({.scale = 1000, .clip = .37}) : opt.step();
    after[size_t(fused)] = p.to_vector();
  }
  CHECK(after[0] == after[1]);
}

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

TEST_CASE(
    "L3 and L4: counters are int64 and count applied steps only, moments and masters are fp32") {
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
    CHECK(t.dtype() == (counts ? DType::i64 : DType::f32));
    if (counts) CHECK(t.item() == 200);
  }
  Tensor x = parameter({1}, DType::f64);
  for (const auto& [name, t] : optim::AdamW({x}).state()) CHECK(t.dtype() != DType::f32);
}

TEST_CASE("C1: an f16 parameter with no gradient to speak of does not change by a single bit") {
  for (bool masters : {true, false}) {
    Tensor p = parameter({1, -2, .5}, DType::f16);
    optim::Adam opt({p}, {.masters = masters, .allow_plain_half = !masters});
    set_grad(p, {0, 0, 0});
    CHECK(opt.step().stepped);
    CHECK(p.to_vector() == Values{1, -2, .5});
  }
}

TEST_CASE(
    "S3: a gradient that is not finite skips the whole step and names the parameter, in every "
    "precision") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (double bad : {inf, -inf, std::nan("")}) {
    Tensor a = parameter({1}, DType::f32, "a"), w = parameter({1, 2}, DType::f32, "w");
    optim::AdamW opt({a, w});
    set_grad(a, {1});
    set_grad(w, {1, 1});
    opt.step();
    std::vector<Values> before;
    for (const auto& [name, t] : opt.state()) before.push_back(t.to_vector());
    Values wa = a.to_vector(), ww = w.to_vector();
    set_grad(w, {1, bad});
    optim::StepResult r = opt.step();
    CHECK(!r.stepped);
    CHECK(r.found_inf);
    CHECK(r.first_bad == "'w'");
    CHECK(r.kind == (std::isnan(bad) ? amp::Finite::nan : amp::Finite::inf));
    CHECK(a.to_vector() == wa);
    CHECK(w.to_vector() == ww);
    size_t k = 0;
    for (const auto& [name, t] : opt.state()) CHECK(t.to_vector() == before[k++]);
  }
}

TEST_CASE("S4: the schedule counts applied steps") {
  optim::Schedule s{.lr = 1, .min_lr = .1, .warmup = 3, .steps = 13, .decay = optim::Decay::cosine};
  CHECK(s.at(0) == .25);
  CHECK(s.at(2) == .75);
  CHECK(s.at(3) == 1);
  CHECK(s.at(8) == doctest::Approx(.55));
  CHECK(s.at(13) == doctest::Approx(.1));
  CHECK(s.at(1000) == doctest::Approx(.1));
  s.decay = optim::Decay::linear;
  CHECK(s.at(8) == doctest::Approx(.55));
  CHECK(s.at(5) == doctest::Approx(.82));
  s.decay = optim::Decay::constant;
  CHECK(s.at(12) == 1);
  CHECK(optim::decay_named("cosine") == optim::Decay::cosine);
  says(error_of([] { optim::decay_named("cos"); }), "constant linear cosine");

  Tensor w = parameter({1}, DType::f32, "w");
  optim::SGD opt({w});
  set_grad(w, {std::nan("")});
  opt.step();
  opt.set_lr(s.at(opt.applied_steps()));
  CHECK(opt.applied_steps() == 0);
  CHECK(opt.lr() == .25);
}

TEST_CASE("S5: a step without any gradient is an error that lists the parameters") {
  Tensor a = parameter({1}, DType::f32, "a"), b = parameter({1});
  optim::SGD opt(std::vector<Tensor>{a, b});
  says(error_of([&] { opt.step(); }), "0 of 2 parameters have a gradient ('a', parameter 1)");
}

TEST_CASE(
    "S9: a step on gradients that still carry the loss scale is an error that names the fix") {
  Tensor w = parameter({1}, DType::f32, "w");
  optim::SGD opt({w});
  set_grad(w, {1024});
  autograd_of(w).scale = 1024;
  std::string e = error_of([&] { opt.step(); });
  says(e, "'w' still carries the loss scale 1024");
  says(e, "scaler.step(optimizer)");
  CHECK(w.item() == 1);
}

TEST_CASE("a parameter without a gradient is skipped: no decay, no step") {
  Tensor a = parameter({1}, DType::f32, "a"), b = parameter({1}, DType::f32, "b");
  optim::AdamW opt(std::vector<Tensor>{a, b}, {.weight_decay = .5});
  set_grad(a, {1});
  opt.step();
  CHECK(b.item() == 1);
  CHECK(state_of(opt, "b.step").item() == 0);
  CHECK(state_of(opt, "a.step").item() == 1);
}

TEST_CASE("groups have their own rate and decay, and set_lr sets every group's") {
  Tensor a = parameter({1}), b = parameter({1});
  optim::SGD opt(std::vector<optim::ParamGroup>{{{a}, {}, 0.0}, {{b}, .5, 1.0}}, {.lr = .25});
  set_grad(a, {1});
  set_grad(b, {1});
  opt.step();
  CHECK(a.item() == .75);
  CHECK(b.item() == 0);
  opt.set_lr(.125);
  CHECK(opt.lr(1) == .125);
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

TEST_CASE("a step bumps the version of what it changes, and of nothing else") {
  Tensor a = parameter({1}), b = parameter({1});
  optim::SGD opt(std::vector<Tensor>{a, b});
  set_grad(a, {1});
  uint64_t va = a.version(), vb = b.version();
  opt.step();
  CHECK(a.version() == va + 1);
  CHECK(b.version() == vb);
}

TEST_CASE("an optimizer refuses numbers out of range, foreign fields and parameters given twice") {
  Tensor w = parameter({1}, DType::f32, "w");
  says(error_of([&] { optim::SGD({w}, {.lr = -1}); }), "lr must be in [0, inf), not -1");
  says(error_of([&] { optim::AdamW({w}, {.betas = {.9, 1}}); }), "betas[1]");
  says(error_of([&] { optim::AdamW({w}, {.eps = -1}); }), "eps");
  says(error_of([&] { optim::AdamW({w}, {.weight_decay = std::nan("")}); }), "weight_decay");
  says(error_of([&] { optim::AdamW({w}, {.momentum = .9}); }), "not momentum");
  says(error_of([&] { optim::SGD({w}, {.eps = 1e-3}); }), "not betas or eps");
  says(error_of([&] { optim::SGD({w}, {.nesterov = true}); }), "needs momentum");
  says(error_of([&] { optim::SGD(std::vector<Tensor>{w, w}); }), "'w' was given twice");
  says(error_of([&] { optim::SGD(std::vector<Tensor>{}); }), "no parameters");
  says(error_of([&] { optim::SGD({arange(3)}); }), "floating");
  says(error_of([&] { optim::rule_named("lion"); }), "sgd adam adamw");
}
