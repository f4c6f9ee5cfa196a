// The loss scaler in whole training runs: two linear layers, four batches, an inf put into the
// gradients of the third. The scale starts at 128 and grows after every good step, so that it ends
// at 128 * 2^good * 0.5^skipped; as all scales are powers of two, the weights are those of the run
// without a scale, bit for bit.
#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/models/layers.h"
#include "minim/optim/clip.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using amp::GradScaler;
using amp::ScalerConfig;
using amp::ScalerState;
using models::Linear;

namespace {

constexpr int kSteps = 4, kBad = 2;

struct Net : models::Sequential {
  Net() : first(add<Linear>(8, 8)), last(add<Linear>(8, 8)) { name_parameters(); }
  Linear &first, &last;
};

/// Different in each step and in each of the two uses.
Tensor batch(int step, int use) {
  Tensor x = empty({8, 8});
  for (Index i = 0; i < 64; ++i)
    x.span<float>()[size_t(i)] = float(std::sin(1.7 * double(i) + 13.0 * step + 5.0 * use));
  return x;
}

struct Way {
  bool scaled = true, autocast = false, unscale = false, reload = false;
  double clip = 0;  ///< largest norm, after unscale()
  int micro_batches = 1, bad = kBad;
  const optim::Rule& rule = optim::kSGD;
  optim::Options options = {.lr = 1};
};
struct Outcome {
  Values values = {};  ///< parameters, and the optimizer's state
  double scale = 0;
};

Outcome train(const Way& way) {
  manual_seed(11);
  Net net;
  optim::Optimizer opt(way.rule, {{net.parameters()}}, way.options);
  const ScalerConfig config{.enabled = way.scaled, .init_scale = 128, .growth_interval = 1};
  GradScaler scaler(config);
  for (int i = 0; i < kSteps; ++i) {
    auto loss = [&] {
      amp::Autocast on(way.autocast ? DType::f16 : DType::f32);
      return mse(net(batch(i, 0)), batch(i, 1));
    };
    scaler.scale(loss() / double(way.micro_batches)).backward();
    if ((i + 1) % way.micro_batches != 0) continue;
    if (i == way.bad) {
      if (!way.scaled) {
        opt.zero_grad();
        continue;
      }
      net.last.weight.grad().select(0, 2).slice(0, 2, 3).fill_(kInf);
    }
    if (way.unscale) scaler.unscale(opt);
    if (way.clip > 0) optim::clip_grad_norm(opt.parameters(), way.clip);
    CHECK(scaler.step(opt).stepped == (i != way.bad));
    scaler.update();
    opt.zero_grad();
    if (!way.reload) continue;
    const ScalerState state = scaler.state();
    scaler = GradScaler(config);
    scaler.load_state(state);
  }
  Outcome out{.scale = scaler.scale()};
  auto take = [&](const Tensor& t) {
    for (double v : t.to_vector()) out.values.push_back(v);
  };
  for (const Tensor& p : net.parameters()) take(p);
  for (const auto& [name, t] : opt.state()) take(t);
  return out;
}

void check_equals_unscaled(Way way, double scale) {
  const Outcome scaled = train(way);
  way.scaled = false;
  const Outcome plain = train(way);
  CHECK(scaled.scale == scale);
  CHECK(plain.scale == 1);
  CHECK(scaled.values == plain.values);
}

}  // namespace

TEST_CASE("a scaled run with one skipped step is the unscaled one without it: scale 512" *
          doctest::test_suite("host")) {
  for (const optim::Rule* rule : {&optim::kSGD, &optim::kAdam, &optim::kAdamW})
    for (bool fused : {false, true})
      for (bool unscale : {false, true})
        for (bool amsgrad : {false, true}) {
          if (amsgrad && rule->kind != optim::Kind::adam) continue;
          CAPTURE(rule->name);
          const double lr = rule->kind == optim::Kind::sgd ? 1 : 0.01;
          check_equals_unscaled({.unscale = unscale,
                                 .reload = true,
                                 .rule = *rule,
                                 .options = {.lr = lr, .amsgrad = amsgrad, .fused = fused}},
                                512);
        }
}

TEST_CASE("a scaled run under f16 autocast is within 1e-3 of the run in f32" *
          doctest::test_suite("host")) {
  const Outcome low = train({.autocast = true}), wide = train({.scaled = false});
  CHECK(low.scale == 512);
  double worst = 0;
  for (size_t i = 0; i < wide.values.size(); ++i)
    worst = std::max(worst, std::abs(low.values[i] - wide.values[i]));
  CHECK(worst < 1e-3);
  CHECK(worst > 0);
}

TEST_CASE("a run that unscales and clips to 0.01 is the unscaled run that clips" *
          doctest::test_suite("host")) {
  check_equals_unscaled({.unscale = true, .clip = 0.01}, 512);
  CHECK(train({.unscale = true, .clip = 0.01}).values != train({.unscale = true}).values);
}

TEST_CASE("a run that accumulates two batches moves the scale at its two steps only" *
          doctest::test_suite("host")) {
  check_equals_unscaled({.micro_batches = 2, .bad = -1}, 512);
}

TEST_CASE("two models, two optimizers and two losses of both: one skips and the scale moves once" *
          doctest::test_suite("host")) {
  auto run = [](bool scaled) {
    manual_seed(3);
    Net nets[2];
    optim::SGD opts[] = {optim::SGD(nets[0].parameters(), {.lr = 1}),
                         optim::SGD(nets[1].parameters(), {.lr = 1})};
    GradScaler scaler({.enabled = scaled, .init_scale = 128, .growth_interval = 1});
    for (int i = 0; i < kSteps; ++i) {
      const Tensor out0 = nets[0](batch(i, 0)), out1 = nets[1](batch(i, 0)), want = batch(i, 1);
      scaler.scale(mse(out0 * 0.3 + out1 * 0.7, want)).backward(true);
      scaler.scale(mse(out0 * 0.6 - out1 * 0.4, want)).backward();
      if (i == kBad && scaled) nets[1].last.weight.grad().fill_(kInf);
      scaler.unscale(opts[0]);
      CHECK(scaler.step(opts[0]).stepped);
      if (scaled || i != kBad) CHECK(scaler.step(opts[1]).stepped == (i != kBad));
      scaler.update();
      for (auto& opt : opts) opt.zero_grad();
    }
    Outcome out{.scale = scaler.scale()};
    for (const Net& net : nets)
      for (const Tensor& p : net.parameters())
        for (double v : p.to_vector()) out.values.push_back(v);
    return out;
  };
  const Outcome scaled = run(true), plain = run(false);
  CHECK(scaled.scale == 128 * 8 * 0.5);
  CHECK(scaled.values == plain.values);
}

TEST_CASE("unscale divides gradients of every layout in fp32 and finds an inf or a NaN in any") {
  enum Layout { contiguous, transposed, sliced };
  for (DType d : {DType::f32, DType::f16})
    for (Layout layout : {contiguous, transposed, sliced})
      for (double bad : {4.0, kInf, kNaN})
        for (size_t where : {0, 1, 2}) {
          const Shape shape{20, layout == sliced ? 5 : 20};
          std::vector<Tensor> params;
          for (size_t k = 0; k < 3; ++k) {
            Tensor grad = full({20, 20}, 4, d);
            if (k == where) grad.select(0, 2).slice(0, 2, 3).fill_(bad);
            if (layout == transposed) grad = grad.transpose(0, 1);
            if (layout == sliced) grad = grad.slice(1, 0, 5);
            params.push_back(zeros(shape, d).set_requires_grad().set_name(k ? "w" : "first"));
            params.back().set_grad(grad);
            set_carried_scale(params.back().grad(), 4);
          }
          optim::SGD opt(params, {.masters = d != DType::f32});
          GradScaler scaler({.init_scale = 4});
          scaler.unscale(opt);
          for (size_t k = 0; k < 3; ++k)
            if (k != where || bad == 4) {
              CHECK(params[k].grad().dtype() == DType::f32);
              CHECK(params[k].grad().to_vector() == Values(size_t(shape.numel()), 1));
            }
          CHECK(scaler.step(opt).stepped == (bad == 4));
          scaler.update();
          CHECK(scaler.scale() == (bad == 4 ? 4 : 2));
        }
}

TEST_CASE("the scaler's stages are a table: what each call does before and after each other") {
  enum Stage { fresh, scaled, unscaled, stepped, updated };
  const char* const none = "no error";
  const char* const kTable[5][5] = {
      // scale, unscale, step, update, load_state
      {none, none, "0 of 1 parameters have a gradient", "no step() or unscale()", none},
      {none, none, none, "no step() or unscale()", none},
      {none, "unscaled already", none, none, "a step is under way"},
      {none, "step() came first", "step() came first", none, "a step is under way"},
      {none, "carries the loss scale 1, not", "carries the loss scale 1, not",
       "no step() or unscale()", none}};
  for (int stage = fresh; stage <= updated; ++stage)
    for (size_t call = 0; call < 5; ++call) {
      const Tensor w = scalar(1);
      optim::SGD opt({w});
      GradScaler scaler({.init_scale = 4});
      if (stage >= scaled) scaler.scale(product(w, 1)).backward();
      if (stage == unscaled || stage == updated) scaler.unscale(opt);
      if (stage >= stepped) scaler.step(opt);
      if (stage == updated) scaler.update();
      CAPTURE(stage);
      CAPTURE(call);
      const ScalerState before = scaler.state();
      const std::string error = error_of([&] {
        if (call == 0) scaler.scale(product(w, 1));
        if (call == 1) scaler.unscale(opt);
        if (call == 2) scaler.step(opt);
        if (call == 3) scaler.update();
        if (call == 4) scaler.load_state(before);
      });
      says(error, kTable[stage][call]);
      const bool moved = call == 3 && error == none;
      CHECK(scaler.state().growth_tracker == before.growth_tracker + moved);
    }
}

TEST_CASE("an unscale that saw no gradient, or failed, is none: no good step is counted for it") {
  const Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 4});
  scaler.unscale(opt);
  says(error_of([&] { scaler.update(); }), "no step() or unscale()");
  product(w, 1).backward();
  says(error_of([&] { scaler.unscale(opt); }), "carries the loss scale 1, not 4");
  CHECK_NOTHROW(scaler.load_state(scaler.state()));
  opt.zero_grad();
  scaler.scale(product(w, 1)).backward();
  CHECK_NOTHROW(scaler.unscale(opt));
  CHECK(w.grad().item() == 1);
}

TEST_CASE("the published numbers of the scale: 3, 4, 0.5 and 2 come back, and 4 becomes 12") {
  const ScalerConfig config{.init_scale = 3, .growth_factor = 4, .growth_interval = 2};
  GradScaler scaler({.init_scale = 6, .growth_factor = 4, .growth_interval = 2});
  scaler.load_state({.scale = 6, .growth_tracker = 1});
  scaler.load_state(GradScaler(config).state());
  CHECK(scaler.state().growth_tracker == 0);
  CHECK(scaler.scale(full({}, 4)).item() == 12);
  ScalerState s = scaler.state();
  for (bool skip : {false, false, true}) s = next(s, skip, config);
  CHECK(s.scale == 6);  // 3 * 4 / 2
  s = {};
  for (int i = 0; i < 166; ++i) s = next(s, true, {});  // PyTorch's scale is 0 then
  CHECK(s.scale == 1);
  CHECK(s.skips_at_floor == 150);
  CHECK(amp::inverse_of(s.scale) == 1);
}
