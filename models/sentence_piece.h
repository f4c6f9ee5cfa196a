// models/sentence_piece.h -- a SentencePiece model (Kudo and Richardson, 2018,
// https://github.com/google/sentencepiece), through its library where minim was built with it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace minim::models {

struct SentencePiece {
  std::string model;  // the bytes of its .model file
  int64_t vocab;
  int32_t unknown;  // the id of what the vocabulary does not have
  std::function<std::vector<int32_t>(std::string_view)> encode;
  std::function<std::string(std::span<const int32_t>)> decode;
  std::function<std::string(int32_t)> text_of;  // what a token adds to a text that goes before it
};

/// Throws Error for what is no model, and where minim was built without the library.
std::shared_ptr<const SentencePiece> load_sentence_piece(std::string model);

}  // namespace minim::models
