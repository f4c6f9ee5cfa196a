// What the loss scaler takes for trouble, and what it puts it down to.
#include "minim/autograd/node.h"
#include "minim/core/allocator.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using amp::GradScaler;
using amp::Note;
using amp::ScalerConfig;
using amp::ScalerState;

namespace {

/// Steps of a model whose gradients overflow above a scale of 65536: how many were skipped.
int run_at_the_edge(GradScaler& scaler, int steps) {
  Tensor w = scalar(1);
  optim::SGD opt({w}, {.lr = 0});
  int skipped = 0;
  for (int i = 0; i < steps; ++i) {
    CAPTURE(i);
    const bool overflows = scaler.scale() > 65536;
    skipped += overflows;
    CHECK(train(scaler, opt, w, overflows ? kInf : 1).level == Note::Level::none);
  }
  return skipped;
}

}  // namespace

TEST_CASE("S14: a growth that overflows is a probe and no trouble, however often it is tried") {
  GradScaler often({.growth_interval = 15});  // a warning at step 95, once
  CHECK(run_at_the_edge(often, 400) == 25);
  CHECK(often.skip_share() == 0);
  GradScaler always({.growth_factor = 4, .growth_interval = 1});  // two of three steps
  CHECK(run_at_the_edge(always, 300) == 200);
  CHECK(always.skip_share() == 0);
  GradScaler uneven({.growth_factor = 3, .growth_interval = 2});  // 65536 between two of its scales
  CHECK(run_at_the_edge(uneven, 300) > 50);
  CHECK(uneven.skip_share() <= .34);
}

TEST_CASE("an overflow at a scale where steps were good is no probe") {
  constexpr ScalerConfig c{.init_scale = 8, .growth_factor = 4, .growth_interval = 2};
  ScalerState s{.scale = 8};
  auto go = [&](std::initializer_list<bool> skips) {
    for (bool skip : skips) s = next(s, skip, c);
  };
  go({false, false});
  CHECK(s.scale == 32);
  CHECK(s.probed_from == 8);
  go({true});  // from 32
  CHECK(s.scale == 16);
  CHECK(recent_skips(s) == 0);
  go({true});  // from 16
  CHECK(recent_skips(s) == 0);
  go({true});  // from 8
  CHECK(recent_skips(s) == 1);
  go({false, false, false, true});  // the third is good at the scale that grew
  CHECK(recent_skips(s) == 2);
  s = next({.scale = 32, .seen = 1, .probed_from = 8}, true, c, true);
  CHECK(recent_skips(s) == 1);  // a NaN loss is none either
  CHECK(s.scale == 32);
}

TEST_CASE("S15: a NaN loss that was dropped is not the cause of a later overflow") {
  enum Dropped { before_backward, with_its_gradients, not_at_all };
  for (Dropped how : {before_backward, with_its_gradients, not_at_all})
    for (bool unscale : {false, true})
      for (bool dynamic : {true, false}) {
        CAPTURE(int(how));
        CAPTURE(unscale);
        CAPTURE(dynamic);
        Tensor w = scalar(1);
        optim::SGD opt({w});
        GradScaler scaler({.dynamic = dynamic, .init_scale = 1024});
        Tensor bad = scaler.scale(product(w, kNaN));
        if (how != before_backward) bad.backward();
        if (how == with_its_gradients) opt.zero_grad();
        scaler.scale(product(w, 1)).backward();
        w.grad().fill_(how == not_at_all ? kNaN : kInf);  // of a loss that is finite
        if (unscale) scaler.unscale(opt);
        CHECK(!scaler.step(opt).stepped);
        const std::string note = scaler.update().text;
        const bool overflow = how != not_at_all;
        if (dynamic) CHECK(scaler.scale() == (overflow ? 512 : 1024));
        says(note, overflow ? "overflow" : "by the model or the data");
      }
}

TEST_CASE("losses are counted without end while no step is made, in bounded memory") {
  Tensor w = scalar(1);
  optim::SGD opt({w});
  GradScaler scaler({.init_scale = 1024});
  auto held = [] { return memory::stats().total.current; };
  scaler.scale(product(w, 1)).backward();
  const size_t before = held();
  for (int i = 0; i < 5000; ++i) {
    if (i == 77) scaler.scale(product(w, kNaN)).backward();
    scaler.scale(product(w, 1)).backward();
    scaler.scale(product(w, 1));  // and no backward
  }
  CHECK(held() < before + 4096);
  CHECK(!scaler.step(opt).stepped);
  CHECK(scaler.update().text == "skipped: NaN at loss scale 1024, by the model or the data");
  CHECK(scaler.scale() == 1024);
}

TEST_CASE("a state that the config cannot hold is refused by the name of what does not fit") {
  const ScalerConfig dynamic{}, fixed{.dynamic = false, .init_scale = 1024}, off{.enabled = false};
  struct Case {
    ScalerConfig config;
    ScalerState state;
    const char* says;
  };
  for (const Case& c :
       {Case{dynamic, {.scale = .25}, "scale 0.25 is outside [min_scale, max_scale] = [1, "},
        Case{dynamic, {.scale = 0x1p40}, "is outside [min_scale, max_scale]"},
        Case{fixed,
             {.scale = 65536},
             "scale 65536 does not fit a scaler whose scale is fixed at 1024"},
        Case{off, {.scale = 65536}, "a scaler that is disabled: its scale is 1"},
        Case{dynamic, {.growth_tracker = -1}, "growth_tracker is -1"},
        Case{dynamic, {.skips_at_floor = -1}, "skips_at_floor is -1"},
        Case{dynamic, {.seen = -5}, "seen is -5"},
        Case{dynamic, {.probed_from = kNaN}, "probed_from is nan"}}) {
    GradScaler scaler(c.config);
    const ScalerState before = scaler.state();
    says(error_of([&] { scaler.load_state(c.state); }), c.says);
    CHECK(scaler.state() == before);
  }
  for (const ScalerConfig& c : {dynamic, fixed, off, ScalerConfig{.min_scale = .125}}) {
    GradScaler from(c), to(c);
    to.load_state(from.state());
    CHECK(to.state() == from.state());
  }
  GradScaler low({.min_scale = .125});
  low.load_state({.scale = .25});
  CHECK(low.scale() == .25);
}

TEST_CASE(
    "E11: update() after unscale() alone asks once whether any process found a bad gradient") {
  for (bool mine : {false, true})
    for (bool others : {false, true}) {
      std::vector<bool> told;
      auto agree = [&](bool found) {
        told.push_back(found);
        return told.size() == 1 ? found || others : found;
      };
      Tensor a = scalar(1, "a"), b = scalar(1, "b");
      optim::SGD first({a}), second({b});
      GradScaler scaler({.init_scale = 1024}, agree);
      scaler.scale(product(a, mine ? kInf : 1)).backward();
      scaler.scale(product(b, 1)).backward();
      scaler.unscale(first);
      scaler.unscale(second);
      CHECK(told.empty());
      scaler.update();
      REQUIRE(!told.empty());
      CHECK(told[0] == mine);
      CHECK(told.size() == (mine || others ? 2 : 1));  // then whether a loss was NaN
      CHECK(scaler.scale() == (mine || others ? 512 : 1024));
    }
}
