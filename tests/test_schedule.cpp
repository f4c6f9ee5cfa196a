#include "minim/optim/schedule.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;

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
  says(error_of([] { optim::decay_named("cos"); }), "constant linear cosine wsd");

  Tensor w = parameter({1}, DType::f32, "w");
  optim::SGD opt({w});
  set_grad(w, {std::nan("")});
  opt.step();
  opt.set_lr(s.at(opt.applied_steps()));
  CHECK(opt.applied_steps() == 0);
  CHECK(opt.lr() == .25);
}

TEST_CASE("warmup-stable-decay holds the rate and falls linearly over its share of the steps") {
  optim::Schedule s{.lr = 1,
                    .min_lr = .1,
                    .warmup = 10,
                    .steps = 100,
                    .decay = optim::decay_named("wsd"),
                    .decay_share = .25};
  CHECK(s.at(0) == doctest::Approx(1. / 11));
  for (int64_t stable : {10, 50, 75}) CHECK(s.at(stable) == 1);
  CHECK(s.at(76) == doctest::Approx(1 - .9 / 25));
  CHECK(s.at(99) == doctest::Approx(.1 + .9 / 25));
  CHECK(s.at(100) == doctest::Approx(.1));
  s.decay_share = 1;  // the fall begins after the warmup at the earliest
  CHECK(s.at(10) == 1);
  CHECK(s.at(55) == doctest::Approx(.55));
  s.decay_share = 0;
  CHECK(s.at(99) == 1);
  CHECK(s.at(100) == .1);
}

TEST_CASE("a warmup longer than the run ends with it: the rate is min_lr from the last step on") {
  for (const char* decay : {"linear", "cosine", "wsd"})
    for (int64_t warmup : {100, 101, 1000}) {
      CAPTURE(decay);
      CAPTURE(warmup);
      const optim::Schedule s{.lr = 1,
                              .min_lr = .1,
                              .warmup = warmup,
                              .steps = 100,
                              .decay = optim::decay_named(decay)};
      CHECK(s.at(99) == doctest::Approx(100. / double(warmup + 1)));
      for (int64_t after : {100, 101, 500, 5000}) CHECK(s.at(after) == .1);
    }
  const optim::Schedule constant{.lr = 1, .warmup = 9, .steps = 5};  // has no end
  CHECK(constant.at(5) == .6);
  CHECK(constant.at(9) == 1);
}

TEST_CASE("a schedule keeps the proportions of the groups' rates") {
  Tensor a = parameter({1}), b = parameter({1}), c = parameter({1});
  const double base = 1e-3;
  optim::AdamW opt(std::vector<optim::ParamGroup>{{{a}}, {{b}, base / 10}, {{c}, 0.0}},
                   {.lr = base});
  const optim::Schedule s{
      .lr = base, .min_lr = 0, .warmup = 3, .steps = 20, .decay = optim::Decay::cosine};
  for (int64_t t = 0; t <= 20; ++t) {
    opt.set_lr(s.at(t));
    CHECK(opt.lr(0) == s.at(t));
    CHECK(opt.lr(1) == base / 10 * (s.at(t) / base));  // PyTorch: initial_lr times the factor
    CHECK(opt.lr(2) == 0);
  }
  opt.set_lr(base);
  CHECK(opt.lr(1) == base / 10);
  optim::SGD from_zero(std::vector<optim::ParamGroup>{{{a}}, {{b}, .5}}, {.lr = 0});
  CHECK(from_zero.lr(1) == .5);
  CHECK_NOTHROW(from_zero.set_lr(0));
  says(error_of([&] { from_zero.set_lr(1); }), "a group's rate of 0.5 has no proportion");
}
