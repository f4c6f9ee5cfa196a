#include <doctest/doctest.h>

#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "minim/core/error.h"
#include "minim/tests/temp_dir.h"
#include "minim/tools/config.h"
#include "minim/tools/nearest.h"

using namespace minim;

namespace {

using Words = std::vector<std::string>;

TrainPlan plan(const Words& words) { return plan_training(words).value(); }

/// The message with which planning fails; "" if it does not.
std::string error_of(const Words& words) {
  try {
    plan_training(words);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& message, const Words& parts) {
  INFO(message);
  for (const std::string& part : parts) CHECK(message.find(part) != std::string::npos);
  return !message.empty();
}

using test::TempDir;

}  // namespace

TEST_CASE("without flags the configuration is the defaults, and every default is allowed") {
  CHECK(plan({}).config == TrainConfig{});
  TrainConfig config;
  for (const Setting& setting : settings_of(config)) {
    if (setting.section.empty()) continue;
    CAPTURE(setting.name);
    const Layer same = {{std::string(setting.name), text(setting), "here"}};
    CHECK_NOTHROW(assign_all(settings_of(config), std::vector<Layer>{same}));
  }
  CHECK(config == TrainConfig{});
}

TEST_CASE("names of settings are unique, and so is what is bound to them") {
  TrainConfig config;
  const auto settings = settings_of(config);
  for (const Setting& a : settings)
    CHECK(std::ranges::count_if(settings, [&](const Setting& b) {
            return a.name == b.name || a.value == b.value || a.name == b.negative;
          }) == 1);
}

TEST_CASE("flags go over the file, the file over the defaults, and each value knows its source") {
  const TempDir dir;
  const std::string file =
      dir.write("c.toml", "lr = 0.5\n[model]\nlayers = 7\nheads = 8\n[train]\nweight_decay = 2\n");
  const TrainPlan p = plan({"--config", file, "--layers=3", "--no-bias", "--untied"});
  CHECK(p.config.model.layers == 3);
  CHECK(p.config.model.heads == 8);
  CHECK(p.config.model.embd == TrainConfig{}.model.embd);
  CHECK(p.config.train.lr == 0.5);
  CHECK(p.config.train.weight_decay == 2);
  CHECK_FALSE(p.config.model.bias);
  CHECK_FALSE(p.config.model.tied);
  CHECK(source_of(p.sources, "layers") == "--layers");
  CHECK(source_of(p.sources, "bias") == "--no-bias");
  CHECK(source_of(p.sources, "heads") == file + ":4");
  CHECK(source_of(p.sources, "embd") == "default");
}

TEST_CASE("the written config.toml reads back to the same configuration") {
  const TempDir dir;
  TrainPlan p =
      plan({"--data", "a \"b\"\\c\n\u00e9.txt", "--lr", "0.1", "--min-lr", "1e-7", "--eps",
            "1e-300", "--dropout", "0.30000000000000004", "--seed", "1000000000000000",
            "--precision", "amp-fp16", "--loss-scale", "1024", "--no-bias", "--steps", "12345678"});
  const std::string file = dir.write("config.toml", to_toml(p));
  TrainConfig back = plan({"--config", file}).config;
  CHECK(back.config == file);
  back.config.clear();
  CHECK(back == with_whole_paths(p.config));
  CHECK(back.run.out == std::filesystem::absolute(p.config.run.out));
  CHECK(to_toml(p).find("lr = 0.1  # --lr\n") != std::string::npos);
}

TEST_CASE("every single setting survives the way through config.toml") {
  TrainConfig ours;
  const TrainConfig defaults;
  for (std::size_t i = 0; i < settings_of(ours).size(); ++i) {
    ours = defaults;
    const std::vector<Setting> settings = settings_of(ours);
    const Setting& s = settings[i];
    if (s.section.empty()) continue;
    CAPTURE(s.name);
    if (auto* const* b = std::get_if<bool*>(&s.value)) **b = !**b;
    if (auto* const* n = std::get_if<std::int64_t*>(&s.value)) **n += 1;
    if (auto* const* x = std::get_if<double*>(&s.value)) **x = (**x + 0.7) / 3;
    if (auto* const* t = std::get_if<std::string*>(&s.value))
      **t = s.choices.empty() ? "other" : std::string(s.choices.back());
    if (auto* const* list = std::get_if<std::vector<std::string>*>(&s.value))
      **list = {"a \"b\"", "c, d"};
    REQUIRE(ours != defaults);
    TrainConfig back;
    const auto table = settings_of(back);
    assign_all(table,
               std::vector<Layer>{read_toml(table, write_toml(settings, {}), "config.toml")});
    CHECK(back == ours);
  }
}

TEST_CASE("a list takes every word and every repeat of one layer, and none of the layer below") {
  const TempDir dir;
  const auto data = [](const std::vector<std::string>& args) {
    return plan(args).config.input.data;
  };
  const std::string file = dir.write("c.toml", "[input]\ndata = [\"x\", \"y\"]\n");
  using Words = std::vector<std::string>;
  CHECK(data({"--config", file}) == Words{"x", "y"});
  CHECK(data({"--config", file, "--data", "a"}) == Words{"a"});
  CHECK(data({"--data", "a", "b", "--steps", "3", "--data", "c"}) == Words{"a", "b", "c"});
  CHECK(says(error_of({"--data", "a", "--val-data", "b", "--val-fraction", "0.2"}),
             {"val-fraction = 0.2 (--val-fraction)", "val-data = b"}));
  CHECK(says(error_of({"--val-data", "b"}), {"data = toy (default)"}));
  CHECK(says(error_of({"--val-fraction", "1"}), {"above 0 and below 1"}));
}

TEST_CASE("resume reads the run's own config.toml and goes on in its directory") {
  const TempDir dir;
  dir.write("config.toml", to_toml(plan({"--out", "somewhere", "--steps", "9"})));
  const TrainPlan p = plan({"--resume", dir.path.string()});
  CHECK(p.config.train.steps == 9);
  CHECK(p.config.run.out == dir.path.string());
  CHECK(source_of(p.sources, "out") == "--resume");
  CHECK(plan({"--resume", dir.path.string(), "--out", "x"}).config.run.out == "x");
  CHECK(says(error_of({"--resume", (dir.path / "no").string()}), {"no/config.toml"}));
  CHECK(says(error_of({"--config", dir.path.string()}), {"is a directory", dir.path.string()}));
  dir.write("config.toml", "[train]\nsteps = 9\n");
  CHECK(says(error_of({"--resume", dir.path.string()}), {"lacks input.data"}));
}

TEST_CASE("an unknown flag or key is an error with the nearest name") {
  const TempDir dir;
  CHECK(says(error_of({"--stpes", "3"}), {"unknown flag --stpes;", "did you mean --steps?"}));
  CHECK(says(error_of({"--batch_size=3"}), {"--batch_size;", "--batch?"}));
  CHECK(says(error_of({"--learning-rate", "1"}), {"did you mean --lr?"}));
  CHECK(says(error_of({"--no-bais"}), {"did you mean --no-bias?"}));
  CHECK(says(error_of({"--zzzzzzzzz"}), {"unknown flag --zzzzzzzzz", "--help"}));
  CHECK(says(error_of({"-x"}), {"unknown flag -x"}));
  CHECK(says(error_of({"toy"}), {"unexpected word 'toy'"}));
  const auto from = [&](const std::string& toml) {
    return error_of({"--config", dir.write("c.toml", toml)});
  };
  CHECK(says(from("[train]\nstep = 3\n"),
             {"c.toml:2", "'train.step'", "did you mean 'steps' in [train]?"}));
  CHECK(says(from("[model]\nsteps = 3\n"), {"'model.steps'", "did you mean 'steps' in [train]?"}));
  CHECK(
      says(from("[modle]\nlayers = 3\n"), {"'modle.layers'", "did you mean 'layers' in [model]?"}));
  CHECK(says(from("resume = \"x\"\n"), {"c.toml:1", "only be given on the command line"}));
}

TEST_CASE("E10: precision decided in two places names both") {
  const TempDir dir;
  const std::string file = dir.write("c.toml", "[amp]\nprecision = \"amp-fp16\"\nbf16 = true\n");
  CHECK(says(error_of({"--config", file}),
             {"'amp.bf16'", "c.toml:3", "'precision'", "amp-fp16", "c.toml:2"}));
  CHECK(says(error_of({"--config", file, "--precision", "fp16-master"}),
             {"c.toml:3", "set to fp16-master by --precision"}));
  CHECK(says(error_of({"--precision", "fp16"}),
             {"precision = fp16 (--precision)", "did you mean amp-fp16?"}));
}

TEST_CASE("a setting given twice in one place is an error naming both") {
  const TempDir dir;
  CHECK(says(error_of({"--lr", "1", "--lr", "2"}), {"lr is given twice", "1 (--lr)", "2 (--lr)"}));
  CHECK(says(error_of({"--bias", "--no-bias"}), {"twice", "(--bias)", "(--no-bias)"}));
  const std::string file = dir.write("c.toml", "lr = 1\n[train]\nlr = 2\n");
  CHECK(says(error_of({"--config", file}), {"twice", "c.toml:1", "c.toml:3"}));
}

TEST_CASE(
    "values of the wrong kind or out of range name setting, value, source and what is expected") {
  CHECK(says(error_of({"--lr", "-1"}), {"lr = -1 (--lr)", "a number above 0"}));
  CHECK(says(error_of({"--lr", "nan"}), {"lr = nan (--lr)", "a number above 0"}));
  CHECK(says(error_of({"--lr", "inf"}), {"lr = inf"}));
  CHECK(says(error_of({"--steps", "0"}), {"steps = 0 (--steps)", "a whole number of at least 1"}));
  CHECK(says(error_of({"--steps", "1.5"}), {"steps = 1.5", "a whole number"}));
  CHECK(says(error_of({"--steps", "99999999999999999999"}), {"steps = 99999999999999999999"}));
  CHECK(says(error_of({"--seed", "1000000000000001"}),
             {"a whole number of at least 0 and at most 1000000000000000"}));
  CHECK(says(error_of({"--batch", "4611686018427387904"}),
             {"at least 1 and at most 1000000000000000"}));
  CHECK(says(error_of({"--batch", "99999999999999999999"}), {"at most 1000000000000000"}));
  CHECK(says(error_of({"--lr", "1e400"}), {"a number above 0 and at most 1.797"}));
  CHECK(says(error_of({"--lr", "inf"}), {"at most 1.797"}));
  CHECK(says(error_of({"--loss-scale", "1e400"}), {"a number above 0 and at most 1.797"}));
  CHECK(error_of({"--lr", "1e-400"}).ends_with("expected a number above 0"));
  CHECK(error_of({"--seed", "-1"}).ends_with("expected a whole number of at least 0"));
  CHECK(says(error_of({"--dropout", "1"}), {"dropout = 1", "at least 0 and below 1"}));
  CHECK(says(error_of({"--device", "gpu"}), {"device = gpu", "one of cpu, cuda"}));
  CHECK(says(error_of({"--loss-scale", "0"}), {"one of auto, dynamic, none, or a number above 0"}));
  CHECK(says(error_of({"--data", ""}), {"data = \"\""}));
  CHECK(says(error_of({"--steps"}), {"--steps", "--help"}));
  CHECK(says(error_of({"--out", "--steps", "5"}), {"--out needs a value", "--steps"}));
  const TempDir dir;
  CHECK(says(error_of({"--config", dir.write("a.toml", "bias = 1\n")}),
             {"bias = 1", "a.toml:1", "true or false"}));
  CHECK(says(error_of({"--config", dir.write("b.toml", "steps = [1]\n")}), {"steps", "b.toml:1"}));
  CHECK(
      says(error_of({"--config", dir.write("c.toml", "\nsteps = \n")}), {"c.toml:2", "not TOML"}));
  CHECK(says(error_of({"--config", dir.write("d.toml", "# ä\nout = \"ö\"\nü = 1\n")}),
             {"d.toml:3", "not TOML", "not ASCII"}));
  CHECK(says(error_of({"--config", dir.write("e.toml", "steps = 1979-05-27T@7:32:00Z\n")}),
             {"e.toml", "not TOML"}));
  CHECK(says(error_of({"--config", "/nowhere/c.toml"}), {"/nowhere/c.toml"}));
}

TEST_CASE("contradictions name both sides") {
  CHECK(says(error_of({"--heads", "3"}), {"embd = 64 (default)", "heads = 3 (--heads)"}));
  CHECK(says(error_of({"--lr", "1e-4", "--min-lr", "1e-3"}),
             {"min-lr = 0.001 (--min-lr)", "lr = 0.0001 (--lr)"}));
  CHECK(says(error_of({"--warmup", "6", "--steps", "5"}),
             {"warmup = 6 (--warmup)", "steps = 5 (--steps)"}));
  for (const std::string scale : {"dynamic", "128"})
    for (const std::string precision : {"fp32", "amp-bf16", "bf16-master", "bf16-sr"})
      CHECK(says(error_of({"--loss-scale", scale, "--precision", precision}),
                 {"loss-scale = " + scale + " (--loss-scale)",
                  "precision = " + precision + " (--precision)"}));
}

TEST_CASE("auto loss scale is dynamic exactly where fp16 is used, and none is allowed everywhere") {
  for (const std::string precision : {"fp32", "amp-bf16", "bf16-master", "bf16-sr"}) {
    CHECK(resolved_loss_scale(plan({"--precision", precision}).config) == "none");
    CHECK(plan({"--precision", precision, "--loss-scale", "none"}).config.amp.loss_scale == "none");
  }
  for (const std::string precision : {"amp-fp16", "fp16-master"}) {
    CHECK(resolved_loss_scale(plan({"--precision", precision}).config) == "dynamic");
    CHECK(resolved_loss_scale(plan({"--precision", precision, "--loss-scale", "none"}).config) ==
          "none");
    CHECK(resolved_loss_scale(plan({"--precision", precision, "--loss-scale", "64"}).config) ==
          "64");
  }
}

TEST_CASE("edit distance counts insertions, deletions and substitutions") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("same", "same") == 0);
  const std::vector<std::string_view> names = {"train", "sample", "eval"};
  CHECK(nearest("trian", names) == "train");
  CHECK(nearest("evaluate", names) == "eval");
  CHECK(nearest("xyzzyxyzzy", names) == "");
}

TEST_CASE("the nearest name is the one with fewest edits, not the first that is within the word") {
  const std::vector<std::string_view> ops = {"max",    "sum", "min", "softmax", "log_softmax",
                                             "cumsum", "log", "mse", "nll_loss"};
  CHECK(nearest("sofmax", ops) == "softmax");
  CHECK(nearest("sotfmax", ops) == "softmax");
  CHECK(nearest("logsoftmax", ops) == "log_softmax");
  CHECK(nearest("log_sotfmax", ops) == "log_softmax");
  CHECK(nearest("mse_loss", ops) == "mse");
  CHECK(nearest("maxpool2d_layer", ops) == "");
  CHECK(nearest("comsum", ops) == "cumsum");
  CHECK(nearest("summ", ops) == "sum");
  CHECK(nearest("maxx", ops) == "max");
  CHECK(nearest("soft", ops) == "softmax");
}

TEST_CASE("recompute and anomaly mode are switched on by flags and recorded") {
  const TrainPlan p = plan({"--checkpoint-activations", "--anomaly"});
  CHECK(p.config.run.checkpoint_activations);
  CHECK(p.config.run.anomaly);
  CHECK(to_toml(p).find("checkpoint-activations = true") != std::string::npos);
  CHECK(to_toml(p).find("anomaly = true") != std::string::npos);
  CHECK_FALSE(plan({}).config.run.anomaly);
}
