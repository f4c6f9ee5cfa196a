#include "minim/models/dataset.h"

#include <algorithm>

#include "minim/core/error.h"
#include "minim/core/random.h"
#include "minim/models/read_file.h"
#include "minim/models/token_file.h"

namespace minim::models {
namespace {

void check_block(int64_t block) {
  if (block < 1) fail("block is ", block, ": a sequence has at least 1 token");
}

}  // namespace

Dataset split(std::vector<int32_t> tokens, Tokenizer tokenizer, std::string source) {
  const auto middle = tokens.begin() + int64_t(tokens.size()) * 9 / 10;
  std::vector<int32_t> val(middle, tokens.end());
  tokens.erase(middle, tokens.end());
  const int64_t vocab = tokenizer.vocab();
  return {std::move(tokens), std::move(val), std::move(tokenizer), vocab, std::move(source)};
}

Dataset load_text(const std::string& path, TokenizerKind kind) {
  if (kind == TokenizerKind::none)
    fail("the text '", path, "' needs a tokenizer: --tokenizer char or byte");
  const std::string text = read_file(path, "data");
  if (text.empty()) fail("data file '", path, "' is empty");
  try {
    Tokenizer tokenizer =
        kind == TokenizerKind::byte ? Tokenizer::bytes() : Tokenizer::characters(text);
    std::vector<int32_t> tokens = tokenizer.encode(text);
    return split(std::move(tokens), std::move(tokenizer), path);
  } catch (const Error& error) {
    fail("data file '", path, "': ", error.what());
  }
}

Dataset load_tokens(const std::string& path, std::optional<int64_t> vocab) {
  TokenFile file = read_token_file(path, vocab);
  return split(std::move(file.tokens), Tokenizer::none(file.vocab), path);
}

void check_length(int64_t n_tokens, int64_t block, const std::string& what) {
  check_block(block);
  if (n_tokens > block) return;
  fail(what, " has ", n_tokens, " tokens; block ", block, " needs >= ", block + 1,
       " tokens (each input and the token after it): give a longer text or a smaller --block");
}

std::vector<int64_t> batch_starts(uint64_t seed, int64_t step, int64_t micro, int64_t batch,
                                  int64_t n_tokens, int64_t block) {
  check_length(n_tokens, block);
  const uint64_t stream = random_stream(RandomUse::data, uint64_t(step));
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < batch; ++i) {
    const auto random = Philox::block(seed, stream, uint64_t(micro) << 32 | uint64_t(i));
    starts.push_back(int64_t(below(uint64_t(n_tokens - block), join(random[0], random[1]))));
  }
  return starts;
}

std::vector<Window> validation_windows(int64_t n_tokens, int64_t block) {
  check_block(block);
  if (n_tokens < 2) fail("validation has ", n_tokens, " tokens; it needs >= 2: give a longer text");
  std::vector<Window> windows;
  for (int64_t start = 0; start < n_tokens - 1; start += block)
    windows.push_back({start, std::min(block, n_tokens - 1 - start)});
  return windows;
}

}  // namespace minim::models
