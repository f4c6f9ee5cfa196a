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
  CHECK(s.at(100) == doctest::Approx(1));
}
