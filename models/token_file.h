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
  TokenArray tokens;   // the file is read through once, to check its ids, and not kept
  int64_t vocab;       // every token is below it
  const char* format;  // "llm.c GPT-2", "llm.c Llama-3" or "plain"
  size_t width;        // bytes of an id
  size_t bytes;        // of the file
};

/// @param vocab size of the vocabulary; without it a header's, else the one of the header's model
/// (50257 or 128256). A file without a header needs it. Throws Error for a missing, empty,
/// odd-sized or truncated file, a header that contradicts itself, and an id that the vocabulary
/// does not have (with its file offset).
TokenFile read_token_file(const std::string& path, std::optional<int64_t> vocab = std::nullopt);

/// llm.c's GPT-2 format. Throws Error for no tokens, and for an id outside 0 .. vocab-1 or over
/// 65535.
std::string token_file_bytes(std::span<const int32_t> tokens, int64_t vocab);
/// Writes them beside `path` and renames: who reads the file that was there goes on with it. Throws
/// Error also when writing fails; what was there is then as it was.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab);

}  // namespace minim::models
