// Every id of a file that is accepted is in its vocabulary. The first byte chooses the vocabulary.
#include "minim/models/token_file.h"
#include "minim/tests/fuzz/fuzz.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto path = fuzz::file_of(fuzz::text_of(data + 1, size - 1), "tokens.bin");
  const auto vocab = data[0] ? std::optional<int64_t>(int64_t{1} << data[0] % 40) : std::nullopt;
  return fuzz::expect_value_or_error([&] {
    const models::TokenFile file = models::read_token_file(path, vocab);
    for (const int32_t id : file.tokens.to_vector())
      if (id < 0 || id >= file.vocab) __builtin_trap();
  });
}
