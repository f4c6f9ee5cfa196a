#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "minim/models/atomic_dir.h"
#include "minim/models/model_file.h"
#include "minim/models/read_file.h"
#include "minim/ops/call.h"

using namespace minim;
using namespace minim::models;
namespace fs = std::filesystem;

namespace {

struct TempDir {
  fs::path path = fs::temp_directory_path() / ("minim-model-file-" + std::to_string(::getpid()));
  TempDir() { fs::create_directories(path); }
  ~TempDir() { fs::remove_all(path); }
  fs::path file() const { return path / "model.safetensors"; }
};

const Tokenizer& abc() {
  static const Tokenizer tokenizer = Tokenizer::characters("abcdé\n");
  return tokenizer;
}

constexpr DecoderConfig kTiny{
    .vocab = 6, .block = 4, .layers = 2, .heads = 2, .embd = 8, .dropout = 0.25, .bias = false};

std::unique_ptr<Decoder> tiny_model(uint64_t seed = 3, DecoderConfig config = kTiny) {
  manual_seed(seed);
  return make_decoder(config);
}

void check_equal_bits(const Decoder& a, const Decoder& b) {
  const NamedTensors x = a.state_dict(), y = b.state_dict();
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    INFO(x[i].first);
    CHECK(x[i].first == y[i].first);
    REQUIRE(x[i].second.dtype() == y[i].second.dtype());
    REQUIRE(x[i].second.shape() == y[i].second.shape());
    const size_t bytes = size_t(x[i].second.numel()) * size_of(x[i].second.dtype());
    CHECK(std::memcmp(x[i].second.data(), y[i].second.data(), bytes) == 0);
  }
}

/// A tiny model's file in which one tensor is of another dtype.
void write_with(const fs::path& file, const std::string& name, DType dtype) {
  const auto model = tiny_model();
  save_model(file, *model, abc());
  const SafeTensors stored = SafeTensors::read(file);
  std::vector<Tensor> keep;
  std::vector<Blob> blobs;
  for (const Blob& blob : stored.blobs()) {
    const Tensor x = tensor_of(blob);
    blobs.push_back(blob_of(blob.name, blob.name == name ? x.to(dtype) : x, keep));
  }
  write_safetensors(file, blobs, stored.metadata());
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// The model in `from` with other metadata.
void rewrite(const fs::path& from, const fs::path& to, const std::string& key,
             const std::string& value) {
  const SafeTensors stored = SafeTensors::read(from);
  Metadata metadata = stored.metadata();
  metadata[key] = value;
  write_safetensors(to, stored.blobs(), metadata);
}

void save_checkpoint(const fs::path& dir, const Decoder& model) {
  AtomicDirectory checkpoint(dir);
  save_model(checkpoint.staging() / "model.safetensors", model, abc());
  checkpoint.commit();
}

}  // namespace

TEST_CASE("model file: what was saved comes back with equal bits, in any dtype" *
          doctest::test_suite("host")) {
  const TempDir dir;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (bool tied : {true, false}) {
      DecoderConfig config = kTiny;
      config.tied = tied;
      const auto model = tiny_model(3, config);
      model->to(dtype);
      save_model(dir.file(), *model, abc(), {{"step", "12"}});
      manual_seed(99);  // the values come from the file, not from the initialisers
      const LoadedModel loaded = load_model(dir.file());
      CHECK(loaded.model->config() == config);
      CHECK(loaded.tokenizer == abc());
      CHECK(loaded.metadata.at("step") == "12");
      check_equal_bits(*model, *loaded.model);
    }
}

TEST_CASE("model file: loading takes nothing from the program's random numbers") {
  const TempDir dir;
  save_model(dir.file(), *tiny_model(), abc());
  manual_seed(7);
  load_model(dir.file());
  CHECK(generator().seed == 7);
  CHECK(generator().next_stream == 0);
}

TEST_CASE("model file: a file, a checkpoint and a run's directory all name a model" *
          doctest::test_suite("host")) {
  const TempDir dir;
  const auto model = tiny_model();
  save_checkpoint(dir.path / "checkpoint", *model);
  check_equal_bits(*model, *load_model(dir.path).model);
  check_equal_bits(*model, *load_model(dir.path / "checkpoint").model);
  check_equal_bits(*model, *load_model(dir.path / "checkpoint" / "model.safetensors").model);
}

TEST_CASE("model file: of a run whose newest checkpoint is damaged, the one before is taken" *
          doctest::test_suite("host")) {
  const TempDir dir;
  const auto older = tiny_model(1), newer = tiny_model(2);
  save_checkpoint(dir.path / "checkpoint", *older);
  save_checkpoint(dir.path / "checkpoint", *newer);
  check_equal_bits(*newer, *load_model(dir.path).model);
  const fs::path file = dir.path / "checkpoint" / "model.safetensors";
  std::string bytes = read_file(file.string(), "test");
  bytes.back() = char(bytes.back() ^ 1);
  write(file, bytes);
  check_equal_bits(*older, *load_model(dir.path).model);
  CHECK_THROWS_WITH_AS(load_model(dir.path / "checkpoint"), doctest::Contains("model.safetensors"),
                       Error);
}

TEST_CASE("model file: what is not there or not a model is told by its name") {
  const TempDir dir;
  CHECK_THROWS_WITH_AS(load_model(dir.path / "none"), doctest::Contains("there is no model"),
                       Error);
  CHECK_THROWS_WITH_AS(load_model(dir.path), doctest::Contains("no run of minim"), Error);
  write(dir.path / "text", "a text, which is no model at all");
  CHECK_THROWS_WITH_AS(load_model(dir.path / "text"), doctest::Contains("text"), Error);
  write(dir.path / "empty", "");
  CHECK_THROWS_WITH_AS(load_model(dir.path / "empty"), doctest::Contains("empty"), Error);
  write_safetensors(dir.path / "foreign", {}, {{"format", "pt"}});
  CHECK_THROWS_WITH_AS(load_model(dir.path / "foreign"), doctest::Contains("not a model of minim"),
                       Error);
}

TEST_CASE("model file: a truncated file is an error, wherever it ends") {
  const TempDir dir;
  save_model(dir.file(), *tiny_model(), abc());
  const std::string bytes = read_file(dir.file().string(), "test");
  const fs::path cut = dir.path / "cut";
  for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 40) {
    write(cut, bytes.substr(0, n));
    CHECK_THROWS_WITH_AS(load_model(cut), doctest::Contains("cut"), Error);
  }
  write(cut, bytes.substr(0, bytes.size() - 1));
  CHECK_THROWS_WITH_AS(load_model(cut), doctest::Contains("cut"), Error);
}

TEST_CASE("model file: metadata that contradicts the weights is an error that names the file") {
  const TempDir dir;
  save_model(dir.file(), *tiny_model(), abc());
  const std::string config = SafeTensors::read(dir.file()).metadata().at("config");
  const auto error = [&](const std::string& key, const std::string& value) -> std::string {
    rewrite(dir.file(), dir.path / "odd", key, value);
    try {
      load_model(dir.path / "odd");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find("odd") != std::string::npos);
      return e.what();
    }
    return "no error";
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    return changed.replace(changed.find(from), from.size(), to);
  };
  const auto says = [](const std::string& message, const std::string& part) {
    INFO(message);
    CHECK(message.find(part) != std::string::npos);
  };
  says(error("config", "{"), "cannot be read");
  says(error("config", "{}"), "cannot be read");
  says(error("config", with("\"embd\":8", "\"embd\":\"8\"")), "cannot be read");
  says(error("config", with("\"heads\":2", "\"heads\":3")), "not divisible");
  says(error("config", with("\"layers\":2", "\"layers\":3")), "missing: blocks.2.");
  says(error("config", with("\"layers\":2", "\"layers\":1")), "unexpected: blocks.1.");
  says(error("config", with("\"block\":4", "\"block\":5")), "positions.weight");
  says(error("config", with("\"block\":4", "\"block\":1000000000000")), "asks for 8e+12");
  says(error("tokenizer", "[]"), "not a tokenizer");
  says(error("tokenizer", Tokenizer::bytes().to_json()), "256 tokens");
}

TEST_CASE("a model file with a tensor that is no weight is refused by its name" *
          doctest::test_suite("host")) {
  const TempDir dir;
  for (const DType d : {DType::i64, DType::i32, DType::u8, DType::boolean, DType::f8e4m3}) {
    CAPTURE(name_of(d));
    write_with(dir.file(), "blocks.1.mlp.up.weight", d);
    CHECK_THROWS_WITH_AS(load_model(dir.file()), doctest::Contains("'blocks.1.mlp.up.weight' is"),
                         Error);
  }
  write_with(dir.file(), "blocks.0.attn.out.weight", DType::bf16);  // the first in the file is f32
  check_equal_bits(*load_model(dir.file()).model, *load_model(dir.file()).model);
  write_with(dir.file(), "tokens.weight", DType::f64);
  CHECK(load_model(dir.file()).model->parameters().front().dtype() == DType::f64);
}

TEST_CASE("a GPT's file with heads of keys and values of its own is refused") {
  const TempDir dir;
  save_model(dir.file(), *tiny_model(), abc());
  const std::string config = SafeTensors::read(dir.file()).metadata().at("config");
  const size_t at = config.find("\"kv_heads\":0");
  REQUIRE(at != config.npos);
  rewrite(dir.file(), dir.path / "kv.safetensors", "config",
          std::string(config).replace(at, 12, "\"kv_heads\":1"));
  CHECK_THROWS_WITH_AS(load_model(dir.path / "kv.safetensors"), doctest::Contains("kv_heads 1"),
                       Error);
}
