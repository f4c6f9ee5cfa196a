// A tokenizer that is accepted reads back as it was written.
#include "minim/models/tokenizer.h"
#include "minim/tests/fuzz/fuzz.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::expect_value_or_error([&] {
    const auto tokenizer = models::Tokenizer::from_json(std::string(fuzz::text_of(data, size)));
    if (!(models::Tokenizer::from_json(tokenizer.to_json()) == tokenizer)) __builtin_trap();
    const auto ids = tokenizer.encode(tokenizer.alphabet());
    if (tokenizer.decode(ids) != tokenizer.alphabet()) __builtin_trap();
  });
}
