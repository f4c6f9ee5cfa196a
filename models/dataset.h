// models/dataset.h -- tokens to train on and tokens to validate on, and which of them a step reads.
// Everything here is a function of its arguments: a resumed run reads what the interrupted one
// would have read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "minim/models/token_array.h"
#include "minim/models/tokenizer.h"

namespace minim::models {

struct Dataset {
  TokenArray train, val;
  Tokenizer tokenizer;
  int64_t vocab;
  std::string source;  // where the tokens are from, for people
};

/// The last ceil(val_fraction n) tokens are for validation, the others for training.
Dataset split(const TokenArray& tokens, Tokenizer tokenizer, std::string source,
              double val_fraction = 0.1);

/// Which files, and how they are read.
struct DataFiles {
  std::vector<std::string> train;     // all texts or all token files (.bin); read as one
  std::string val = {};               // to validate on, of the same kind; "": the end of `train`
  double val_fraction = 0.1;          // how much of the end
  std::string tokenizer = "auto";     // of texts: char, which auto is, byte, or a file: X.model
  std::optional<int64_t> vocab = {};  // of token files that do not say
};

/// Texts are tokenized in memory; the characters of all of them make the vocabulary. Token files
/// (token_file.h) stay on the disk; their tokenizer is the one beside them, or of kind none. Texts
/// are read by `model`, the tokenizer of a trained model, where there is one. Throws Error for a
/// file that is missing, empty, or (characters) not UTF-8, for both kinds at once, and for what
/// does not fit the vocabulary.
Dataset load_files(const DataFiles& files, const std::optional<Tokenizer>& model = std::nullopt);

/// The same files, each for itself, `val` last.
struct LoadedFile {
  std::string path;
  TokenArray tokens;
  std::string format, dtype;  // "text", or as in token_file.h; "utf-8", "uint16" or "uint32"
  size_t bytes, lines = 0, longest_line = 0;  // lines of a text
};
struct LoadedFiles {
  std::vector<LoadedFile> files;
  Tokenizer tokenizer;
};
LoadedFiles load_each(const DataFiles& files, const std::optional<Tokenizer>& model = std::nullopt);

/// A token file (llm.c's GPT-2 format) with its tokenizer beside it, in PATH.tokenizer.json, so
/// that load_files finds the same tokens and the same text. Throws Error as write_token_file does.
void save_tokens(const std::string& path, const TokenArray& tokens, const Tokenizer& tokenizer);

/// Throws Error unless n_tokens >= block + 1: `block` inputs, each with the token after it.
/// @param what names the tokens in the message.
void check_length(int64_t n_tokens, int64_t block, const std::string& what = "the data");

/// Where the sequences of one micro-batch start: `batch` numbers, uniform on 0 .. n_tokens-block-1,
/// keyed by (seed, step, micro). Throws Error as check_length does.
std::vector<int64_t> batch_starts(uint64_t seed, int64_t step, int64_t micro, int64_t batch,
                                  int64_t n_tokens, int64_t block);

/// The same in epochs: the tokens are cut into blocks, and each epoch reads every whole block once,
/// in an order keyed by (seed, epoch). `first` sequences were read before, over all epochs; how
/// they were batched does not matter.
std::vector<int64_t> epoch_starts(uint64_t seed, int64_t first, int64_t batch, int64_t n_tokens,
                                  int64_t block);

/// Inputs are tokens start .. start+length-1, targets start+1 .. start+length.
struct Window {
  int64_t start, length;
  bool operator==(const Window&) const = default;
};

/// Consecutive windows of `block` targets (the last may have fewer) in which every token but the
/// first is a target once. Throws Error for fewer than 2 tokens.
std::vector<Window> validation_windows(int64_t n_tokens, int64_t block);

}  // namespace minim::models
