#include "minim/models/model_file.h"

#include <cstring>

#include "minim/models/atomic_dir.h"
#include "minim/models/manifest.h"
#include "minim/models/parse_json.h"
#include "minim/models/reason.h"
#include "minim/ops/call.h"

namespace minim::models {
namespace {

using nlohmann::json;
constexpr const char* kFormat = "minim-gpt";

json config_to_json(const DecoderConfig& c) {
  return {{"vocab", c.vocab},      {"block", c.block}, {"layers", c.layers},
          {"heads", c.heads},      {"embd", c.embd},   {"dropout", c.dropout},
          {"bias", c.bias},        {"tied", c.tied},   {"model", name_of(c.family)},
          {"kv_heads", c.kv_heads}};
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

std::filesystem::path file_in(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!fs::exists(path)) fail("there is no model at '", path.string(), "'");
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path / "model.safetensors")) {
    if (fs::exists(path / kManifestName)) verify_manifest(path);
    return path / "model.safetensors";
  }
  if (auto checkpoint = newest_complete(path / "checkpoint"))
    return *checkpoint / "model.safetensors";
  fail("'", path.string(),
       "' holds neither model.safetensors nor checkpoint/: it is no run of minim train");
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
  if (!state.empty()) loaded.model->to(state.front().second.dtype());
  loaded.model->load_state_dict(state);
  return loaded;
}

}  // namespace

Blob blob_of(const std::string& name, const Tensor& x, std::vector<Tensor>& keep) {
  keep.push_back(x.detach().clone());  // also of dense elements, which may change in place
  const Tensor& dense = keep.back();
  return {name,
          x.dtype(),
          {x.shape().begin(), x.shape().end()},
          std::span(static_cast<const std::byte*>(dense.data()),
                    size_t(x.numel()) * size_of(x.dtype()))};
}

Tensor tensor_of(const Blob& blob) {
  Tensor x = empty(Shape(std::span<const Index>(blob.shape)), blob.dtype);
  std::memcpy(x.data(), blob.bytes.data(), blob.bytes.size());
  return x;
}

void save_model(const std::filesystem::path& file, const Decoder& model, const Tokenizer& tokenizer,
                const Metadata& extra) {
  std::vector<Tensor> keep;
  std::vector<Blob> blobs;
  for (auto& [name, tensor] : model.state_dict()) blobs.push_back(blob_of(name, tensor, keep));
  Metadata metadata = extra;
  metadata["format"] = kFormat;
  metadata["config"] = config_to_json(model.config()).dump();
  metadata["tokenizer"] = tokenizer.to_json();
  write_safetensors(file, blobs, metadata);
}

LoadedModel load_model(const std::filesystem::path& path) {
  const std::filesystem::path file = file_in(path);
  const SafeTensors stored = SafeTensors::read(file);
  if (!is_model(stored.metadata()))
    fail("'", file.string(),
         "' is a safetensors file, but not a model of minim: its metadata lacks format \"", kFormat,
         "\"");
  try {
    return model_of(stored);
  } catch (const json::exception& e) {
    fail("'", file.string(), "' has a model configuration that cannot be read: ", reason(e));
  } catch (const Error& e) {
    fail("'", file.string(), "': ", e.what());
  }
}

}  // namespace minim::models
