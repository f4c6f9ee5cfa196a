// Every blob of a file that is accepted lies in memory that may be read.
#include <numeric>

#include "minim/models/model_file.h"
#include "minim/tests/fuzz/fuzz.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto path = fuzz::file_of(fuzz::text_of(data, size), "file.safetensors");
  return fuzz::expect_value_or_error([&] {
    const auto file = models::SafeTensors::read(path);
    for (const models::Blob& blob : file.blobs()) {
      if (file.find(blob.name) != &blob) __builtin_trap();
      models::tensor_of(blob);
    }
  });
}
