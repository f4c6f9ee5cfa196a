// A model in a safetensors file: its configuration and tokenizer are JSON inside the metadata.
#include "minim/models/model_file.h"
#include "minim/tests/fuzz/fuzz.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto path = fuzz::file_of(fuzz::text_of(data, size), "model.safetensors");
  return fuzz::expect_value_or_error([&] { models::load_model(path); });
}
