// Field cases of whole training runs. Names begin with the case's id (docs/field-cases.md).
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/autograd/node.h"
#include "minim/tools/loss_watch.h"
#include "minim/tools/trainer.h"

using namespace minim;
using doctest::Contains;

namespace {

Trainer tiny(const std::string& precision) {
  TrainConfig c;
  c.input.toy_tokens = 2000;
  c.model = {.layers = 1, .heads = 1, .embd = 8, .block = 8, .dropout = 0};
  c.train.steps = 100;
  c.train.batch = 2;
  c.train.accum = 2;
  c.amp.precision = precision;
  c.run = {.threads = 1};
  return Trainer(c);
}

void multiply(const Trainer& trainer, const std::string& name, double factor) {
  NoGrad guard;
  for (auto [n, p] : trainer.model().named_parameters())
    if (n == name) p.mul_(factor);
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("S10: a run that only skips stops and names the first bad op and its module") {
  for (const char* precision : {"fp32", "amp-fp16"}) {
    CAPTURE(precision);
    Trainer trainer = tiny(precision);
    CHECK(trainer.step()->note == "");
    multiply(trainer, "blocks.0.mlp.up.weight", kNaN);
    std::string text;
    int64_t steps = 1;
    try {
      for (; steps < 1000; ++steps) trainer.step();
    } catch (const Error& e) {
      text = e.what();
    }
    CHECK(steps == 50);
    CHECK(text.find("the cause is the model or the data: NaN in the gradient of") !=
          std::string::npos);
    INFO(text);
    const std::string op = precision == std::string("fp32") ? "linear" : "to";  // the cast
    CHECK(text.find("\nthe first bad op of the step: [" + op + "] NaN in result 0, in module " +
                    "blocks.0.mlp.up, at step 51") != std::string::npos);
    CHECK(trainer.scaler().scale() == (precision == std::string("fp32") ? 1 : 65536));
  }
}

TEST_CASE("S14: a step's report has the share of skipped ones and where a bad batch begins") {
  Trainer trainer = tiny("bf16-master");
  CHECK(trainer.step()->skip_share == 0);
  multiply(trainer, "blocks.0.mlp.up.weight", kNaN);
  const StepReport bad = *trainer.step();
  CHECK(bad.skip_share == 0.5);
  CHECK(bad.note.find("step 2: the loss is nan, recently ") != std::string::npos);
  CHECK(bad.note.find("sequences begin at tokens ") != std::string::npos);
  CHECK(trainer.step()->note == "");
  CHECK(trainer.skipped() == 2);
}

TEST_CASE("E12: a loss that leaps is told once and a NaN is printed as nan") {
  LossWatch watch;
  for (int i = 0; i < 200; ++i) CHECK_FALSE(watch.flags(2 + 0.5 * std::sin(i)));
  CHECK(watch.flags(20));
  for (double loss : {21.0, kNaN, 19.0}) CHECK_FALSE(watch.flags(loss));
  CHECK_FALSE(watch.flags(2));
  CHECK(watch.recent() < 2.1);
  CHECK(watch.flags(kNaN));
  CHECK_FALSE(watch.flags(1));
  CHECK_FALSE(LossWatch().flags(1e9));  // the first losses have nothing to be far from

  Trainer trainer = tiny("amp-bf16");
  for (int i = 0; i < 25; ++i) CHECK(trainer.step()->note == "");
  multiply(trainer, "norm.weight", 200);
  CHECK(trainer.step()->note.starts_with("step 26: the loss is "));
  CHECK(trainer.step()->note == "");
}
