// models/dataset.h -- tokens to train on and tokens to validate on, and which of them a step reads.
// Everything here is a function of its arguments: a resumed run reads what the interrupted one
// would have read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minim/models/tokenizer.h"

namespace minim::models {

struct Dataset {
  std::vector<int32_t> train, val;
  Tokenizer tokenizer;
  int64_t vocab;
  std::string source;  // where the tokens are from, for people
};

/// The first floor(0.9 n) tokens are for training, the rest for validation.
Dataset split(std::vector<int32_t> tokens, Tokenizer tokenizer, std::string source);

/// A text file. Throws Error when it is missing, empty, or (characters) not UTF-8.
Dataset load_text(const std::string& path, TokenizerKind kind);

/// A token file; see token_file.h. Its tokens have no text: the tokenizer's kind is none.
Dataset load_tokens(const std::string& path, std::optional<int64_t> vocab = std::nullopt);

/// Throws Error unless n_tokens >= block + 1: `block` inputs, each with the token after it.
/// @param what names the tokens in the message.
void check_length(int64_t n_tokens, int64_t block, const std::string& what = "the data");

/// Where the sequences of one micro-batch start: `batch` numbers, uniform on 0 .. n_tokens-block-1,
/// keyed by (seed, step, micro). Throws Error as check_length does.
std::vector<int64_t> batch_starts(uint64_t seed, int64_t step, int64_t micro, int64_t batch,
                                  int64_t n_tokens, int64_t block);

/// Inputs are tokens start .. start+length-1, targets start+1 .. start+length.
struct Window {
  int64_t start, length;
  bool operator==(const Window&) const = default;
};

/// Consecutive windows of `block` targets (the last may have fewer) in which every token but the
/// first is a target once. Throws Error for fewer than 2 tokens.
std::vector<Window> validation_windows(int64_t n_tokens, int64_t block);

}  // namespace minim::models
