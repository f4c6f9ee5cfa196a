// models/token_file.h -- files of token ids (.bin), little-endian:
//   llm.c, GPT-2    header of 256 int32 (magic 20240520, version 1, number of tokens, 0 ...), then
//                   uint16 ids
//   llm.c, Llama-3  the same with magic 20240801, version 7, then uint32 ids
//   nanoGPT         uint16 ids and nothing else
// minim writes the first, with the size of the vocabulary in the header's fourth number, which
// llm.c leaves 0 and ignores.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "minim/models/token_array.h"

namespace minim::models {

struct TokenFile {
  TokenArray tokens;   // mapped: the file is read through once, to check its ids, and not kept
  int64_t vocab;       // every token is below it
  const char* format;  // "llm.c GPT-2", "llm.c Llama-3" or "plain"
  size_t width;        // bytes of an id
};

/// @param vocab size of the vocabulary; without it a header's, else the one of the header's model
/// (50257 or 128256). A file without a header needs it. Throws Error for a missing, empty,
/// odd-sized or truncated file, a header that contradicts itself, and an id that the vocabulary
/// does not have (with its file offset).
TokenFile read_token_file(const std::string& path, std::optional<int64_t> vocab = std::nullopt);

/// Writes llm.c's GPT-2 format. Throws Error for no tokens, an id outside 0 .. vocab-1 or over
/// 65535 (nothing is written then), and when writing fails.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab);

}  // namespace minim::models
