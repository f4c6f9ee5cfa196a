#include "minim/models/model_file.h"
#include "minim/core/pool.h"

#include <sys/stat.h>

#include <cstring>

#include "minim/models/atomic_dir.h"
#include "minim/models/json.h"
#include "minim/models/manifest.h"
#include "minim/models/reason.h"
#include "minim/ops/call.h"

namespace minim::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr const char* kFormat = "minim-gpt";

std::string to_json(const DecoderConfig& c) {
  return JsonText()
      .add_value("vocab", c.vocab)
      .add_value("block", c.block)
      .add_value("layers", c.layers)
      .add_value("heads", c.heads)
      .add_value("embd", c.embd)
      .add_value("dropout", c.dropout)
      .add_value("bias", c.bias)
      .add_value("tied", c.tied)
      .add_value("model", name_of(c.family))
      .add_value("kv_heads", c.kv_heads)
      .text();
}

DecoderConfig config_from_json(const json& j) {
  return {.vocab = integer_in(j, "vocab"),
          .block = integer_in(j, "block"),
          .layers = integer_in(j, "layers"),
          .heads = integer_in(j, "heads"),
          .embd = integer_in(j, "embd"),
          .dropout = j.at("dropout"),
          .bias = j.at("bias"),
          .tied = j.at("tied"),
          .family = family_named(j.at("model").get<std::string>()),
          .kv_heads = integer_in(j, "kv_heads")};
}

fs::path file_in(const fs::path& path, std::string& damage) {
  if (!fs::exists(path)) fail("there is no model at '", path.string(), "'");
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / "model.safetensors")) {
    if (fs::exists(path / kManifestName)) verify_manifest(path);
    return path / "model.safetensors";
  }
  if (auto checkpoint = newest_complete(path / "checkpoint", &damage))
    return *checkpoint / "model.safetensors";
  fail("'", path.string(),
       "' holds neither model.safetensors nor checkpoint/: it is no run of minim train");
}

/// What a save changes: which file or directory bears the names, and what names are in it.
std::string state_of(const fs::path& path) {
  std::string all;
  for (const fs::path& at : {path, path / "checkpoint", path / "checkpoint.prev"}) {
    struct stat s {};
    if (::stat(at.c_str(), &s) == 0)
      for (const int64_t part : {int64_t(s.st_dev), int64_t(s.st_ino), int64_t(s.st_mtim.tv_sec),
                                 int64_t(s.st_mtim.tv_nsec), int64_t(s.st_ctim.tv_nsec)})
        all += std::to_string(part) + ' ';
    all += '/';
  }
  return all;
}

/// The dtype that holds every value of a model's tensors, which are floating.
DType widest(const NamedTensors& state) {
  DType wide = state.front().second.dtype();
  for (const auto& [name, tensor] : state) {
    const DType d = tensor.dtype();
    if (!is_half(d) && d != DType::f32 && d != DType::f64)
      fail("'", name, "' is ", name_of(d), ", where a model has f16, bf16, f32 or f64");
    wide = promote_types(wide, d);
  }
  return wide;
}

bool is_model(const Metadata& m) {
  auto format = m.find("format");
  return format != m.end() && format->second == kFormat && m.contains("config") &&
         m.contains("tokenizer");
}

LoadedModel model_of(const SafeTensors& stored) {
  const Metadata& m = stored.metadata();
  LoadedModel loaded{nullptr, Tokenizer::from_json(m.at("tokenizer")), m};
  const DecoderConfig config = config_from_json(parse_json(m.at("config")));
  if (config.vocab != loaded.tokenizer.vocab())
    fail("the model has a vocabulary of ", config.vocab, ", but its tokenizer has ",
         loaded.tokenizer.vocab(), " tokens");
  NamedTensors state;
  for (const Blob& blob : stored.blobs()) state.emplace_back(blob.name, tensor_of(blob));
  Index values = 0;
  for (const auto& [name, tensor] : state) values += tensor.numel();
  if (least_parameters(config) > double(values))  // before it is built
    fail("the configuration asks for ", least_parameters(config),
         " parameters or more, but the file holds ", values);
  const Generator before =
      generator();  // of the program: initial values that are overwritten take none of it
  loaded.model = make_decoder(config);
  generator() = before;
  if (!state.empty()) loaded.model->to(widest(state));
  loaded.model->load_state_dict(state);
  return loaded;
}

LoadedModel load_once(const fs::path& path) {
  std::string damage;
  const fs::path file = file_in(path, damage);
  const SafeTensors stored = SafeTensors::read(file);
  if (!is_model(stored.metadata()))
    fail("'", file.string(),
         "' is a safetensors file, but not a model of minim: its metadata lacks format \"", kFormat,
         "\"");
  try {
    LoadedModel loaded = model_of(stored);
    loaded.file = file;
    loaded.damage = damage;
    return loaded;
  } catch (const json::exception& e) {
    fail("'", file.string(), "' has a model configuration that cannot be read: ", reason(e));
  } catch (const Error& e) {
    fail("'", file.string(), "': ", e.what());
  }
}

}  // namespace

Blob blob_of(const std::string& name, const Tensor& x, std::vector<Tensor>& keep) {
  return lent_blob(name, x.detach().clone(), keep);  // dense elements too may change in place
}

Blob lent_blob(const std::string& name, const Tensor& x, std::vector<Tensor>& keep) {
  keep.push_back((x.is_contiguous() ? x.detach() : x.detach().clone()).on_host());
  const Tensor& dense = keep.back();
  return {name,
          x.dtype(),
          {x.shape().begin(), x.shape().end()},
          std::span(static_cast<const std::byte*>(dense.data()),
                    size_t(x.numel()) * size_of(x.dtype()))};
}

Tensor tensor_of(const Blob& blob) {
  Tensor x = empty(Shape(std::span<const Index>(blob.shape)), blob.dtype, kHost);
  std::memcpy(x.data(), blob.bytes.data(), blob.bytes.size());
  return x;
}

void save_model(const std::filesystem::path& file, const Decoder& model, const Tokenizer& tokenizer,
                const Metadata& extra, const NamedTensors& instead) try {
  std::vector<Tensor> keep;
  std::vector<Blob> blobs;
  NamedTensors state = model.state_dict();
  for (auto& [name, tensor] : state)
    for (const auto& [other, values] : instead)
      if (other == name) tensor = values;
  for (const auto& [name, tensor] : state) blobs.push_back(lent_blob(name, tensor, keep));
  Metadata metadata = extra;
  metadata["format"] = kFormat;
  metadata["config"] = to_json(model.config());
  metadata["tokenizer"] = tokenizer.to_json();
  write_safetensors(file, blobs, metadata);
} catch (const std::bad_alloc&) {
  pool::fail_full("save_model");
}

LoadedModel load_model(const fs::path& path) try {
  constexpr int kTries = 100;
  for (int tries = 1;; ++tries) {
    const std::string before = state_of(path);
    const auto may_be_torn = [&] { return tries < kTries && state_of(path) != before; };
    try {
      LoadedModel loaded = load_once(path);
      if (loaded.damage.empty() || !may_be_torn()) return loaded;
    } catch (const std::exception&) {
      if (!may_be_torn()) throw;
    }
  }
} catch (const std::bad_alloc&) {
  pool::fail_full("load_model");
}

}  // namespace minim::models
