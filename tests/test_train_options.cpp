#include <doctest/doctest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "minim/models/model_file.h"
#include "minim/models/read_file.h"
#include "minim/tests/full_memory.h"
#include "minim/tests/temp_dir.h"
#include "minim/tools/run.h"
#include "minim/tools/trainer.h"

using namespace minim;
namespace fs = std::filesystem;

namespace {

using test::TempDir;

TrainConfig small(const std::string& precision, const std::string& optimizer) {
  TrainConfig c;
  c.input.toy_tokens = 3000;
  c.model = {.layers = 1, .heads = 2, .embd = 16, .block = 16, .dropout = .1};
  c.train.steps = 6;
  c.train.batch = 2;
  c.train.optimizer = optimizer;
  c.train.lr = optimizer == "sgd" ? .1 : 3e-3;
  c.train.nesterov = optimizer == "sgd";
  c.train.amsgrad = optimizer.starts_with("adam");
  c.train.schedule = "wsd";
  c.train.ema = .99;
  c.amp.precision = precision;
  c.run = {.threads = 1, .log_every = 2, .eval_every = 0};
  return c;
}

double steps(Trainer& trainer, int n) {
  double loss = 0;
  for (int i = 0; i < n; ++i) loss = trainer.step()->loss;
  return loss;
}

}  // namespace

TEST_CASE("E1: each optimizer resumes bit for bit in each precision with its averages") {
  const TempDir temp;
  for (const char* optimizer : {"muon", "adamw", "sgd"})
    for (const char* precision :
         {"fp32", "amp-bf16", "amp-fp16", "bf16-master", "fp16-master", "bf16-sr"}) {
      CAPTURE(optimizer);
      CAPTURE(precision);
      TrainConfig c = small(precision, optimizer);
      Trainer whole(c), first(c), second(c);
      steps(whole, 6);
      steps(first, 3);
      first.save(temp.path / "cut");
      CHECK(second.resume(temp.path / "cut") == "");
      steps(second, 3);
      CHECK(std::isfinite(second.loss()));
      CHECK(second.loss() == whole.loss());
      CHECK(second.evaluate().loss == whole.evaluate().loss);
      whole.save(temp.path / "whole");
      second.save(temp.path / "cut");
      for (const char* file : {"model.safetensors", "optimizer.safetensors", "ema.safetensors",
                               "model_ema.safetensors", "state.json"}) {
        CAPTURE(file);
        CHECK(models::read_file(temp.path / "whole/checkpoint" / file, "") ==
              models::read_file(temp.path / "cut/checkpoint" / file, ""));
      }
    }
}

TEST_CASE("validation uses the averaged weights and the file of them is a model with that loss") {
  const TempDir temp;
  TrainConfig c = small("fp32", "adamw");
  Trainer averaged(c);
  c.train.ema = 0;
  Trainer plain(c);
  CHECK(steps(averaged, 6) == steps(plain, 6));
  double loss = averaged.evaluate().loss;
  CHECK(loss != plain.evaluate().loss);
  averaged.save(temp.path);
  models::LoadedModel used = models::load_model(temp.path / "checkpoint/model_ema.safetensors");
  CHECK(models::evaluate(*used.model, averaged.data().val, 16, 8, averaged.precision()).loss ==
        loss);
  CHECK_THROWS_WITH_AS(Trainer(c).resume(temp.path),
                       doctest::Contains("ema: 0.99 in the checkpoint, 0 now"), Error);
}

// Sanitizers end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a run with averages is saved where there is no memory for a copy of its weights" *
          doctest::test_suite("host")) {
  const TempDir temp;
  TrainConfig c = small("fp32", "adamw");
  c.model.embd = 512;  // 13 MB of weights
  Trainer trainer(c);
  CHECK(test::with_memory(
            6 << 20, [&] { trainer.save(temp.path); }, [] { return true; }) == test::Ended::whole);
  CHECK_NOTHROW(Trainer(c).resume(temp.path));
}
#endif

TEST_CASE("a run with grad-stats logs every parameter's gradient") {
  const TempDir temp;
  TrainPlan plan{small("amp-fp16", "muon"), {}};
  plan.config.run.grad_stats = true;
  plan.config.run.out = (temp.path / "run").string();
  std::ostringstream out;
  run_training(plan, out);
  std::ifstream log(temp.path / "run/log.jsonl");
  std::string line;
  REQUIRE(std::getline(log, line));
  nlohmann::json record = nlohmann::json::parse(line);
  CHECK(record.at("skip_share") == 0);
  double squares = 0;
  for (const auto& [name, g] : record.at("gradients").items()) {
    CAPTURE(name);
    CHECK(g.at("nonfinite") == 0);
    CHECK(g.at("nonzero") > 0);
    CHECK(g.at("max") <= g.at("norm"));
    squares += std::pow(g.at("norm").get<double>(), 2);
  }
  CHECK(record.at("gradients").contains("blocks.0.attn.qkv.weight"));
  CHECK(std::sqrt(squares) == doctest::Approx(record.at("grad_norm").get<double>()));
}
