// models/model_file.h -- a model with what is needed to use it, in one safetensors file.
#pragma once
#include <filesystem>
#include <memory>

#include "minim/models/decoder.h"
#include "minim/models/safetensors.h"
#include "minim/models/tokenizer.h"

namespace minim::models {

/// Parameters by dotted name; in the metadata the format "minim-gpt", the configuration, the
/// tokenizer and `extra`. Dense values are written from where they lie, those in `instead` for
/// the ones of their names.
void save_model(const std::filesystem::path& file, const Decoder& model, const Tokenizer& tokenizer,
                const Metadata& extra = {}, const NamedTensors& instead = {});

struct LoadedModel {
  std::unique_ptr<Decoder> model;  ///< in the dtype of the file
  Tokenizer tokenizer;
  Metadata metadata;
  std::filesystem::path file{};
  std::string damage{};  ///< why it is not a run's newest checkpoint, in one line; "" where it is
};
/// @param path a file of save_model(), a checkpoint (a directory with model.safetensors), or a
/// run's directory (with checkpoint/; the newest complete one). It may be replaced meanwhile: then
/// it is read again. @throws Error naming what was found instead, and every tensor that does not
/// fit.
LoadedModel load_model(const std::filesystem::path& path);

/// Tensors as blobs and back; `keep` holds copies that the blobs point into, which nothing that is
/// done to x changes.
Blob blob_of(const std::string& name, const Tensor& x, std::vector<Tensor>& keep);
/// The same without a copy of dense elements: for a write at once, while nobody changes x.
Blob lent_blob(const std::string& name, const Tensor& x, std::vector<Tensor>& keep);
Tensor tensor_of(const Blob& blob);

}  // namespace minim::models
