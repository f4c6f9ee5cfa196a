#include "minim/autograd/node.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using amp::GradScaler;
using amp::ScalerConfig;
using amp::ScalerState;

namespace {

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

TEST_CASE(
    "S7: a disabled scaler has scale 1 and returns the loss itself, and a NaN still skips and is "
    "named") {
  GradScaler scaler({.enabled = false});
  CHECK(!scaler.enabled());
  CHECK(scaler.scale() == 1);
  Tensor w = scalar(1);
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
  Tensor w = scalar(1);
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

TEST_CASE(
    "S10: endless skips end at the floor with the cause: NaN, or inf at scale 1, is the model or "
    "the data") {
  for (double bad : {kNaN, kInf}) {
    const bool nan = std::isnan(bad);
    Tensor w = scalar(1, "blocks.0.weight");
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
    CHECK(steps == (nan ? 5 : 16 + 5));  // a NaN loss is no reason to try a lower scale
    CHECK(scaler.scale() == (nan ? 65536 : 1));
    says(e,
         nan ? "5 steps in a row were skipped at loss scale 65536, with a loss that is not finite"
             : "5 steps in a row were skipped at loss scale 1, the lowest");
    says(e, "the cause is the model or the data");
    says(e, nan ? "NaN in the gradient of 'blocks.0.weight'"
                : "inf in the gradient of 'blocks.0.weight'");
  }
  CHECK(std::string(amp::cause_of(amp::Finite::inf, 1024)) == "scale overflow");
  CHECK(std::string(amp::cause_of(amp::Finite::nan, 1024)) == "the model or the data");
}

TEST_CASE("S13: skips before the first good step are calibration, and told to be harmless") {
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler;
  for (int i = 0; i < 2; ++i) {
    CHECK(scaler.calibrating());
    amp::Note note = train(scaler, opt, w, kInf);
    CHECK(note.level == amp::Note::Level::info);
    says(note.text, "calibration: inf at loss scale");
    says(note.text, "scale overflow, harmless");
  }
  CHECK(train(scaler, opt, w, 1).level == amp::Note::Level::none);
  CHECK(!scaler.calibrating());
  CHECK(scaler.skip_share() == 0);
  CHECK(scaler.scale() == 16384);
}

TEST_CASE("S14: a share of skips over 5 % warns once, over 50 % of a full window stops") {
  Tensor w = scalar(1);
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
  bool other_skips = true, other_has_nan_loss = false;
  int asked = 0;
  auto agree = [&](bool mine) {
    return mine || (asked++ % 2 == 0 ? other_skips : other_has_nan_loss);
  };
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 1024}, agree);
  scaler.scale(product(w, 1)).backward();
  amp::StepResult r = scaler.step(opt);
  CHECK(!r.stepped);
  CHECK(r.found_inf);
  CHECK(r.first_bad == "");
  scaler.update();
  CHECK(scaler.scale() == 512);
  other_has_nan_loss = true;
  train(scaler, opt, w, 1);
  CHECK(scaler.scale() == 512);
  other_skips = false;
  train(scaler, opt, w, 1);
  CHECK(w.item() < 1);
  CHECK(asked == 5);
}

TEST_CASE("calls in the wrong order are errors that say what came first") {
  Tensor w = scalar(1);
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
  Tensor w = scalar(1, "head.weight");
  GradScaler scaler;
  auto gone = std::make_unique<optim::SGD>(std::vector<Tensor>{w});
  scaler.scale(product(w, kNaN)).backward();
  scaler.unscale(*gone);
  gone.reset();
  CHECK(scaler.update().text == "skipped: NaN at loss scale 65536, by the model or the data");
  CHECK(scaler.scale() == 65536);
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
    Tensor w = scalar(1);
    optim::SGD opt({w});
    GradScaler scaler({.dynamic = false, .init_scale = c.scale, .max_skips = 2});
    auto micro_step = [&](double loss) {
      scaler.scale(product(w, 0) + loss).backward();
      w.set_grad(tensor({c.slope}));
      set_carried_scale(w.grad(), c.scale);
    };
    std::string e, note;
    for (int i = 0; i < 2; ++i) {
      micro_step(c.loss);
      micro_step(1);  // the worst of several losses counts
      e = error_of([&] {
        scaler.step(opt);
        note = scaler.update().text;
      });
      opt.zero_grad();
    }
    says(e, c.cause);
    says(note, "skipped: ");
    says(note, c.cause + sizeof "the cause is");
    says(e, c.scale > 1 && std::isfinite(c.loss) ? "a lower fixed scale" : "look at the weights");
  }
}
