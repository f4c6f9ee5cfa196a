// A resumed run with other settings: for each setting of the table, what the table says happens.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "minim/models/read_file.h"
#include "minim/tests/temp_dir.h"
#include "minim/tools/trainer.h"

using namespace minim;
using doctest::Contains;
namespace fs = std::filesystem;

namespace {

using test::TempDir;

/// In which every setting counts.
TrainConfig base_for(std::string_view name, const TempDir& dir) {
  TrainConfig c;
  c.input.toy_tokens = 3000;
  c.input.shuffle = "epoch";
  c.model = {.layers = 1, .heads = 2, .embd = 16, .block = 16, .dropout = .1};
  c.train = {.steps = 8, .batch = 2, .accum = 2, .schedule = "wsd", .decay_share = .6};
  c.train.warmup = 1;
  c.train.clip = .05;
  c.train.ema = .9;
  c.amp = {.precision = "amp-fp16", .loss_scale = "1024"};
  c.run = {.threads = 1, .log_every = 2, .eval_every = 0};
  if (name == "precision") c.amp.loss_scale = "auto";
  if (name == "attention") c.model.block = 96;  // several tiles
  if (name == "nesterov") c.train.optimizer = "sgd";
  if (name == "kv-heads" || name == "model") c.model.model = "llama";
  const bool text = name == "data" || name == "val-data" || name == "tokenizer";
  std::string words;
  for (int i = 0; i < 200; ++i) words += std::to_string(i * i) + ' ';
  if (text) c.input.data = {dir.write("text", words)};
  if (name == "val-data") c.input.val_data = dir.write("val", words.substr(300));
  if (name == "vocab") {
    std::string ids;
    for (int i = 0; i < 800; ++i) ids += {char(i * i % 50), '\0'};
    c.input.data = {dir.write("ids.bin", ids)};
    c.input.vocab = 50;
  }
  return c;
}

const std::map<std::string_view, std::string> kOther = {
    {"val-fraction", "0.2"},
    {"shuffle", "random"},
    {"vocab", "51"},
    {"toy-tokens", "3001"},
    {"layers", "2"},
    {"model", "gpt"},
    {"heads", "4"},
    {"kv-heads", "1"},
    {"embd", "32"},
    {"block", "15"},
    {"dropout", "0.3"},
    {"bias", "false"},
    {"tied", "false"},
    {"attention", "reference"},
    {"steps", "16"},
    {"batch", "3"},
    {"accum", "1"},
    {"optimizer", "adam"},
    {"lr", "0.01"},
    {"min-lr", "0.001"},
    {"warmup", "5"},
    {"schedule", "linear"},
    {"decay-share", "0.9"},
    {"beta1", "0.8"},
    {"beta2", "0.9"},
    {"eps", "0.01"},
    {"amsgrad", "true"},
    {"nesterov", "true"},
    {"weight-decay", "3"},
    {"clip", "0.01"},
    {"ema", "0.8"},
    {"seed", "1"},
    {"precision", "amp-bf16"},
    {"loss-scale", "1000"},
    {"policy", "lean"},
    {"device", "cuda"},
    {"threads", "2"},
    {"log-every", "1"},
    {"grad-stats", "true"},
    {"eval-every", "1"},
    {"checkpoint-every", "1"},
    {"checkpoint-activations", "true"},
    {"anomaly", "true"},
    {"profile", "true"},
    {"profile-trace", "trace.json"},
    {"data", ""},
    {"val-data", ""},
    {"tokenizer", ""},
};

TrainConfig with(TrainConfig c, std::string_view name, const std::string& value) {
  assign_all(settings_of(c), std::vector<Layer>{{{std::string(name), value, "--" + value}}});
  return c;
}

std::string value_of(TrainConfig c, std::string_view name) {
  for (const Setting& s : settings_of(c))
    if (s.name == name) return text(s);
  return "";
}

/// The weights after two more steps from the checkpoint in `from`.
std::string weights_after(const TrainConfig& c, const fs::path& from, const TempDir& dir,
                          std::string& told) {
  Trainer t(c);
  told = t.resume(from);
  t.step(), t.step();
  t.save(dir.path / "after");
  return models::read_file(dir.path / "after/checkpoint/model.safetensors", "model");
}

void check(const Setting& s, const TempDir& dir) {
  const TrainConfig base = base_for(s.name, dir);
  const fs::path from = dir.path / "run";
  Trainer first(base);
  for (int i = 0; i < 3; ++i) first.step();
  first.save(from);
  std::string told;
  const std::string same = weights_after(base, from, dir, told);
  CHECK(told == "");
  const std::string name(s.name), was = value_of(base, s.name);
  const auto refused = [&](const std::string& value, const std::string& why) {
    CAPTURE(value);
    CHECK_THROWS_WITH_AS(Trainer(with(base, s.name, value)).resume(from), Contains(why.c_str()),
                         Error);
  };
  if (s.on_resume == OnResume::content) {
    if (name == "vocab") return refused("51", "vocab: 50 in the checkpoint, 51 now");
    std::string alike = "char", other = "byte";
    if (name != "tokenizer") {
      const std::string file = name == "data" ? "text" : "val";
      const std::string bytes = models::read_file(dir.path / file, "data");
      alike = dir.write("moved", bytes), other = dir.write("changed", "1" + bytes);
    }
    CHECK(weights_after(with(base, name, alike), from, dir, told) == same);
    CHECK(told == "settings that are others from here on: " + name + " " + was + " -> " + alike);
    return refused(other, name == "tokenizer" ? "the tokenizer" : "the data");
  }
  const std::string value = kOther.at(s.name);
  if (s.on_resume == OnResume::kept)
    return refused(value, name + ": " + was + " in the checkpoint, " + value + " now");
  const std::string after = weights_after(with(base, name, value), from, dir, told);
  const std::string now = name == "profile-trace" ? fs::absolute(value).string() : value;
  INFO(told);
  CHECK(told.starts_with("settings that are others from here on: " + name + " " + was + " -> " +
                         now));
  // The trainer runs where run_training() made sure of it; a GPT's numbers are those of both
  // policies.
  if (name == "device" || name == "policy") return;
  CHECK((after == same) == (s.on_resume == OnResume::free));
}

}  // namespace

TEST_CASE("each setting that a resumed run has otherwise is taken and told, or refused") {
  TrainConfig c;
  for (const Setting& s : settings_of(c)) {
    CAPTURE(s.name);
    const bool of_one_call = s.section.empty() || s.name == "out";
    REQUIRE((s.on_resume == OnResume::call) == of_one_call);
    if (of_one_call) continue;
    const TempDir dir;
    check(s, dir);
  }
}

TEST_CASE("another course of the rate is told with both rates") {
  const TempDir dir;
  TrainConfig c = base_for("steps", dir);
  c.train.schedule = "linear";
  c.train.lr = 1e-3, c.train.warmup = 0, c.train.steps = 4;
  Trainer first(c);
  for (int i = 0; i < 4; ++i) first.step();
  first.save(dir.path / "run");
  c.train.steps = 8;
  CHECK(Trainer(c).resume(dir.path / "run") ==
        "settings that are others from here on: steps 4 -> 8; the rate of the next step is 0.0005, "
        "not 0");
}

TEST_CASE("epochs go on where they were, whatever the batches, and begin where there were none") {
  const TempDir dir;
  TrainConfig c = base_for("accum", dir);
  std::string words;
  for (int i = 0; i < 49; ++i) words += char('A' + i);  // an epoch is 12 sequences of 4
  c.input.data = {dir.write("letters", words)};
  c.input.val_data = dir.write("val", words);
  c.model.block = 4, c.model.dropout = 0;
  c.train.lr = 1e-12;  // so that the losses tell which sequences were read
  for (const char* shuffle : {"epoch", "random"}) {
    c.input.shuffle = shuffle;
    c.train.batch = 2, c.train.accum = 2;
    Trainer first(c);
    first.step();
    first.save(dir.path / "run");
    c.input.shuffle = "epoch";
    Trainer by_four(c);
    by_four.resume(dir.path / "run");
    c.train.accum = 1;
    Trainer by_two(c);
    by_two.resume(dir.path / "run");
    Trainer anew(c);
    for (int i = 0; i < 4; ++i) {
      const double four = by_four.step()->loss, two = by_two.step()->loss / 2;
      CHECK(two + by_two.step()->loss / 2 == doctest::Approx(four).epsilon(1e-6));
      if (std::string_view(shuffle) == "random")
        CHECK(anew.step()->loss / 2 + anew.step()->loss / 2 == doctest::Approx(four).epsilon(1e-6));
    }
  }
}

TEST_CASE("the loss scale of a resumed run is the one that is asked for") {
  const TempDir dir;
  TrainConfig c = base_for("loss-scale", dir);
  Trainer first(c);
  first.step();
  first.save(dir.path / "run");
  for (const auto& [asked, scale] :
       std::map<std::string, double>{{"512", 512}, {"dynamic", 65536}, {"none", 1}}) {
    c.amp.loss_scale = asked;
    Trainer now(c);
    now.resume(dir.path / "run");
    CHECK(now.scaler().scale() == scale);
  }
}
