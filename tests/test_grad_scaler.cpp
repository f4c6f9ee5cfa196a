#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/grad_scaler.h"
#include "minim/autograd/node.h"
#include "minim/ops/functional.h"
#include "minim/optim/clip.h"
#include "minim/optim/optimizer.h"

using namespace minim;
using amp::GradScaler;
using amp::ScalerConfig;
using amp::ScalerState;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor parameter(double v, const char* name = "w", DType d = DType::f32) {
  return tensor({v}, d).set_requires_grad().set_name(name);
}
Tensor product(const Tensor& w, double slope) {
  return (w * tensor({slope}, w.dtype())).reshape({});
}

std::string error_of(auto&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
void says(const std::string& text, const char* part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

/// One whole step whose gradient is `slope`.
amp::Note train(GradScaler& scaler, optim::Optimizer& opt, const Tensor& w, double slope) {
  opt.zero_grad();
  scaler.scale(product(w, slope)).backward();
  scaler.step(opt);
  return scaler.update();
}

constexpr ScalerState after(ScalerState s, std::initializer_list<bool> skips,
                            const ScalerConfig& c) {
  for (bool skip : skips) s = next(s, skip, c);
  return s;
}

constexpr ScalerConfig kSmall{.init_scale = 4, .backoff_factor = .25, .growth_interval = 2};
static_assert(after({.scale = 4}, {false}, kSmall).growth_tracker == 1);
static_assert(after({.scale = 4}, {false}, kSmall).scale == 4);
static_assert(after({.scale = 4}, {false, false}, kSmall).scale == 8);
static_assert(after({.scale = 4}, {false, false}, kSmall).growth_tracker == 0);
static_assert(after({.scale = 4}, {false, false, true}, kSmall).scale == 2);
static_assert(after({.scale = 4}, {false, true}, kSmall).growth_tracker == 0);

}  // namespace

TEST_CASE(
    "the next state is a table: skip or not, on the way or at the interval, at floor, cap and "
    "between") {
  struct Row {
    double scale;
    int64_t tracker;
    bool skip;
    double scale_after;
    int64_t tracker_after, at_floor;
  };
  constexpr ScalerConfig c{.init_scale = 8, .growth_interval = 3, .min_scale = 2, .max_scale = 32};
  for (Row r : {Row{8, 0, false, 8, 1, 0}, Row{8, 1, false, 8, 2, 0}, Row{8, 2, false, 16, 0, 0},
                Row{8, 2, true, 4, 0, 0}, Row{8, 0, true, 4, 0, 0}, Row{2, 1, true, 2, 0, 1},
                Row{3, 1, true, 2, 0, 0}, Row{32, 2, false, 32, 0, 0}, Row{24, 2, false, 24, 0, 0},
                Row{16, 2, false, 32, 0, 0}}) {
    CAPTURE(r.scale);
    CAPTURE(r.tracker);
    CAPTURE(r.skip);
    ScalerState s = next({.scale = r.scale, .growth_tracker = r.tracker}, r.skip, c);
    CHECK(s.scale == r.scale_after);
    CHECK(s.growth_tracker == r.tracker_after);
    CHECK(s.skips_at_floor == r.at_floor);
  }
  CHECK(after({.scale = 8}, {true, true, true, true, false}, c).skips_at_floor == 0);
  CHECK(after({.scale = 8}, {true, true, true, true}, c).skips_at_floor == 2);
  ScalerConfig fixed{.dynamic = false, .init_scale = 8};
  CHECK(after({.scale = 8}, {true, true, false}, fixed).scale == 8);
  CHECK(after({.scale = 8}, {true, true}, fixed).skips_at_floor == 2);
}

TEST_CASE("the default scale first grows at update 2000, and a product past the cap is refused") {
  ScalerState s;
  for (int i = 1; i <= 4000; ++i) {
    s = next(s, false, {});
    if (i == 1999) CHECK(s.scale == 65536);
    if (i == 2000 || i == 3999) CHECK(s.scale == 131072);
  }
  CHECK(s.scale == 262144);
  ScalerConfig wide{
      .init_scale = 1e38, .growth_factor = 16, .growth_interval = 1, .max_scale = 3.4e38};
  CHECK(next({.scale = 1e38}, false, wide) ==
        next({.scale = 1e38, .growth_tracker = 5}, false, wide));
  CHECK(next({.scale = 1e38}, false, wide).scale == 1e38);
}

TEST_CASE("S12: the scale is capped at 2^24") {
  ScalerState s;
  for (int i = 0; i < 200; ++i) s = next(s, false, {.growth_interval = 1});
  CHECK(s.scale == 0x1p24);
}

TEST_CASE("a scaled loss has the scaled value, and its gradients carry the scale and say so") {
  Tensor w = parameter(3);
  GradScaler scaler({.init_scale = 1024});
  Tensor loss = product(w, 2), scaled = scaler.scale(loss);
  CHECK(scaled.item() == 6 * 1024);
  CHECK(scaled.dtype() == DType::f32);
  CHECK(scaled.rank() == 0);
  scaled.backward();
  CHECK(w.grad().item() == 2048);
  CHECK(autograd_of(w).scale == 1024);
  CHECK(loss.item() == 6);
}

TEST_CASE("the mark survives what is done to a scaled loss") {
  Tensor w = parameter(3);
  GradScaler scaler({.init_scale = 1024});
  (scaler.scale(product(w, 2)) / 4.0 + scaler.scale(product(w, 1))).backward();
  CHECK(w.grad().item() == 1.5 * 1024);
  CHECK(autograd_of(w).scale == 1024);
}

TEST_CASE("S11: an f16 loss is scaled in fp32, and so is its seed") {
  Tensor w = parameter(.01, "w", DType::f16);
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
  Tensor w = parameter(1);
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
  Tensor w = parameter(1);
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
  Tensor w = parameter(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 0x1p-20, .min_scale = 0x1p-30});
  scaler.scale(product(w, 1)).backward();
  w.grad().fill_(3e38);
  CHECK(!scaler.step(opt).stepped);
}

TEST_CASE(
    "a NaN that appears after unscale skips the step, and an inf that is clamped away after it "
    "still does") {
  for (bool clamped : {false, true}) {
    Tensor w = parameter(1);
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
  Tensor w = parameter(1), other = parameter(2, "other");
  optim::SGD opt({w});
  GradScaler scaler;
  scaler.scale(product(other, 1)).backward();
  says(error_of([&] { scaler.step(opt); }), "0 of 1 parameters have a gradient ('w')");
  says(error_of([&] { scaler.update(); }), "no step() or unscale()");
}

TEST_CASE("S6: an f16 parameter without a master is refused by name, with the fix") {
  Tensor w = parameter(1, "fc.weight", DType::f16);
  std::string e = error_of([&] { optim::AdamW({w}); });
  says(e, "'fc.weight' is stored in f16 (a module's to() converts its parameters)");
  says(e, "masters = true");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(product(w, 0x1p-20)).backward();
  scaler.unscale(opt);
  CHECK(w.grad().dtype() == DType::f32);
  CHECK(w.grad().item() == 0x1p-20);
}

TEST_CASE(
    "S7: a disabled scaler has scale 1 and returns the loss itself, and a NaN still skips and is "
    "named") {
  GradScaler scaler({.enabled = false});
  CHECK(!scaler.enabled());
  CHECK(scaler.scale() == 1);
  Tensor w = parameter(1);
  optim::SGD opt({w}, {.lr = 1});
  Tensor loss = product(w, .5);
  CHECK(scaler.scale(loss).shared() == loss.shared());
  CHECK_NOTHROW(scaler.update());
  train(scaler, opt, w, .5);
  CHECK(w.item() == .5);
  scaler.scale(product(w, kNaN)).backward();
  scaler.unscale(opt);
  scaler.unscale(opt);
  amp::StepResult r = scaler.step(opt);
  CHECK(!r.stepped);
  CHECK(r.first_bad == "'w'");
  CHECK(r.scale_after == 1);
  scaler.update();
  CHECK(scaler.state().recent[0] == 1);
}

TEST_CASE("S8: the state exists before the first scale and round-trips") {
  ScalerConfig c{.init_scale = 1024, .growth_interval = 2};
  GradScaler one(c), two({.growth_interval = 2});
  CHECK(one.state().scale == 1024);
  Tensor w = parameter(1);
  optim::SGD opt({w});
  train(one, opt, w, 1);
  CHECK(one.state().growth_tracker == 1);
  two.load_state(one.state());
  CHECK(two.state() == one.state());
  train(two, opt, w, 1);
  CHECK(two.scale() == 2048);
  says(error_of([&] { two.load_state({.scale = kInf}); }), "positive and finite");
  CHECK(two.scale() == 2048);
}

TEST_CASE("S9: the optimizer's own step on scaled gradients is an error") {
  Tensor w = parameter(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(product(w, 1)).backward();
  says(error_of([&] { opt.step(); }), "still carries the loss scale 1024");
  CHECK(scaler.step(opt).stepped);
  CHECK(w.item() == doctest::Approx(1 - 1e-3));
}

TEST_CASE(
    "S10: endless skips end at the floor with the cause: NaN, or inf at scale 1, is the model or "
    "the data") {
  for (double bad : {kNaN, kInf}) {
    Tensor w = parameter(1, "blocks.0.weight");
    optim::SGD opt({w});
    GradScaler scaler({.init_scale = 65536, .max_skips = 5});
    int steps = 0;
    std::string e;
    while (e.empty() && steps < 1000) {
      ++steps;
      try {
        train(scaler, opt, w, bad);
      } catch (const Error& error) {
        e = error.what();
      }
    }
    CHECK(steps == 16 + 5);
    CHECK(scaler.scale() == 1);
    says(e, "5 steps in a row were skipped at loss scale 1");
    says(e, "the cause is the model or the data");
    says(e, std::isnan(bad) ? "NaN in the gradient of 'blocks.0.weight'"
                            : "inf in the gradient of 'blocks.0.weight'");
  }
  CHECK(std::string(amp::cause_of(amp::Finite::inf, 1024)) == "scale overflow");
  CHECK(std::string(amp::cause_of(amp::Finite::nan, 1024)) == "the model or the data");
}

TEST_CASE("S13: skips before the first good step are calibration") {
  Tensor w = parameter(1);
  optim::SGD opt({w});
  GradScaler scaler;
  for (int i = 0; i < 2; ++i) {
    CHECK(scaler.calibrating());
    amp::Note note = train(scaler, opt, w, kInf);
    CHECK(note.level == amp::Note::Level::info);
    says(note.text, "calibration: inf at loss scale");
  }
  CHECK(train(scaler, opt, w, 1).level == amp::Note::Level::none);
  CHECK(!scaler.calibrating());
  CHECK(scaler.skip_share() == 0);
  CHECK(scaler.scale() == 16384);
}

TEST_CASE("S14: a share of skips over 5 % warns once, over 50 % of a full window stops") {
  Tensor w = parameter(1);
  optim::SGD opt({w}, {.lr = 0});
  GradScaler scaler({.max_skips = 1000});
  int warnings = 0, steps = 0;
  auto count = [&](double slope) {
    ++steps;
    amp::Note note = train(scaler, opt, w, slope);
    warnings += note.level == amp::Note::Level::warning;
    if (note.level == amp::Note::Level::warning)
      says(note.text, "6 of the last 100 steps were skipped, the last by 'w'");
  };
  for (int i = 0; i < 50; ++i) count(1), count(kInf);
  CHECK(warnings == 1);
  CHECK(scaler.skip_share() == .5);
  std::string e = error_of([&] { count(kInf), count(kInf); });
  says(e, "51 of the last 100 steps were skipped");
  GradScaler young({.max_skips = 1000});
  CHECK_NOTHROW(train(young, opt, w, 1));
  for (int i = 0; i < 98; ++i) CHECK_NOTHROW(train(young, opt, w, kInf));
  CHECK(young.skip_share() == doctest::Approx(98. / 99));
  CHECK_THROWS_AS(train(young, opt, w, kInf), Error);
}

TEST_CASE("E11: found_inf goes through one reduction, and then all step or all skip") {
  bool other_skips = true;
  auto agree = [&](bool mine) { return mine || other_skips; };
  Tensor w = parameter(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 1024}, agree);
  scaler.scale(product(w, 1)).backward();
  amp::StepResult r = scaler.step(opt);
  CHECK(!r.stepped);
  CHECK(r.found_inf);
  CHECK(r.first_bad == "");
  scaler.update();
  CHECK(scaler.scale() == 512);
  other_skips = false;
  train(scaler, opt, w, 1);
  CHECK(w.item() < 1);
}

TEST_CASE(
    "one injected inf in four steps: the scale is 128 * 2^3 / 2, and the weights are those without "
    "that step") {
  Tensor w = parameter(1), plain = parameter(1);
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
  Tensor a = parameter(1, "a"), b = parameter(1, "b");
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
  Tensor w = parameter(0);
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
  Tensor w = parameter(1, "w", DType::bf16);
  for (int i = 0; i < 1024; ++i) product(w, 1).backward();
  CHECK(w.grad().item() == 1024);
  CHECK(w.grad().dtype() == DType::f32);
}

TEST_CASE("calls in the wrong order are errors that say what came first") {
  Tensor w = parameter(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 4});
  says(error_of([&] { scaler.update(); }), "no step() or unscale()");
  product(w, 1).backward();
  says(error_of([&] { scaler.unscale(opt); }),
       "carries the loss scale 1, not 4; run scaler.scale(loss).backward()");
  says(error_of([&] { scaler.step(opt); }), "carries the loss scale 1, not 4");
  opt.zero_grad();
  scaler.scale(product(w, 1)).backward();
  scaler.step(opt);
  says(error_of([&] { scaler.step(opt); }), "step() came first");
  says(error_of([&] { scaler.unscale(opt); }), "step() came first");
  says(error_of([&] { scaler.load_state({}); }), "a step is under way");
  scaler.update();
  says(error_of([&] { scaler.update(); }), "no step() or unscale()");
  says(error_of([&] { scaler.scale(arange(1)); }), "floating");
}

TEST_CASE("a scaler refuses a config that cannot work") {
  for (ScalerConfig c : {ScalerConfig{.init_scale = 0}, ScalerConfig{.init_scale = kInf},
                         ScalerConfig{.init_scale = .5}, ScalerConfig{.growth_factor = 1},
                         ScalerConfig{.backoff_factor = 1}, ScalerConfig{.backoff_factor = 0},
                         ScalerConfig{.growth_interval = 0}, ScalerConfig{.max_skips = 0},
                         ScalerConfig{.init_scale = 0x1p25},
                         ScalerConfig{.dynamic = false, .init_scale = 1e-50},  // 0 in fp32
                         ScalerConfig{.dynamic = false, .init_scale = 1e-40},  // 1 / it is inf
                         ScalerConfig{.dynamic = false, .init_scale = 1e39},
                         ScalerConfig{.min_scale = 1e-50}, ScalerConfig{.max_scale = 1e39}})
    CHECK_THROWS_AS(GradScaler{c}, Error);
  GradScaler scaler;
  CHECK_THROWS_AS(scaler.load_state({.scale = 1e-50}), Error);
}

TEST_CASE("an optimizer may die between unscale and update") {
  Tensor w = parameter(1, "head.weight");
  GradScaler scaler;
  auto gone = std::make_unique<optim::SGD>(std::vector<Tensor>{w});
  scaler.scale(product(w, kNaN)).backward();
  scaler.unscale(*gone);
  gone.reset();
  CHECK(scaler.update().text == "calibration: NaN at loss scale 65536, next 32768");
  CHECK(scaler.scale() == 32768);
}

TEST_CASE("a fixed scale is the cause of what is not finite where the loss is finite") {
  struct {
    double scale, loss, slope;
    const char* cause;
  } cases[] = {{0x1p100, 1, kInf, "the cause is scale overflow"},
               {0x1p100, 1, kNaN, "the cause is scale overflow"},  // inf - inf somewhere
               {0x1p100, kNaN, kNaN, "the cause is the model or the data"},
               {0x1p100, kInf, kInf, "the cause is the model or the data"},
               {1, 1, kInf, "the cause is the model or the data"}};
  for (auto c : cases) {
    Tensor w = parameter(1);
    optim::SGD opt({w});
    GradScaler scaler({.dynamic = false, .init_scale = c.scale, .max_skips = 2});
    auto micro_step = [&](double loss) {
      scaler.scale(product(w, 0) + loss).backward();
      w.set_grad(tensor({c.slope}));
      autograd_of(w).scale = c.scale;
    };
    std::string e, note;
    for (int i = 0; i < 2; ++i) {
      micro_step(c.loss);
      w.set_grad({});
      micro_step(1);  // the worst of several losses counts
      e = error_of([&] {
        scaler.step(opt);
        note = scaler.update().text;
      });
    }
    says(e, c.cause);
    says(note, "skipped: ");
    says(note, c.cause + sizeof "the cause is");
    says(e, c.scale > 1 && std::isfinite(c.loss) ? "a lower fixed scale" : "look at the weights");
  }
}
