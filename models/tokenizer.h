// models/tokenizer.h -- text to token ids and back.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minim/models/sentence_piece.h"

namespace minim::models {

enum class TokenizerKind {
  byte,       // one token per byte, vocabulary 256; reads anything
  character,  // one token per Unicode code point of the training text, ids in the code points'
              // order
  none,       // tokens from a file whose text is unknown: written and read as numbers
  sentencepiece,
};

/// A value: cheap to copy, equal when it encodes alike.
class Tokenizer {
 public:
  static Tokenizer bytes();
  /// The vocabulary is the characters of `text`. Throws Error for invalid UTF-8 (with the byte
  /// offset) and for no text.
  static Tokenizer characters(std::string_view text);
  /// Throws Error unless 1 <= vocab <= 2^31.
  static Tokenizer none(int64_t vocab);

  /// @param model the bytes of a .model file. Throws Error as load_sentence_piece does.
  static Tokenizer sentencepiece(std::string model);

  TokenizerKind kind() const { return kind_; }
  std::string kind_name() const;
  int64_t vocab() const { return vocab_; }

  /// Throws Error for what the vocabulary does not have, with its place in the text.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Throws Error for an id outside 0 .. vocab()-1.
  std::string decode(std::span<const int32_t> tokens) const;

  /// What the token adds to a text that goes before it. Throws as decode does.
  std::string text_of(int32_t id) const;
  /// The id of what the vocabulary does not have; -1 where that is an error.
  int32_t unknown() const { return pieces_ ? pieces_->unknown : -1; }
  /// Kind character: the characters in the order of their ids.
  std::string alphabet() const;

  /// A JSON object, kept beside a checkpoint. from_json throws Error for anything that to_json did
  /// not write.
  std::string to_json() const;
  static Tokenizer from_json(const std::string& json);

  bool operator==(const Tokenizer& other) const;

 private:
  Tokenizer(TokenizerKind kind, int64_t vocab) : kind_(kind), vocab_(vocab) {}
  int32_t id_of(char32_t character, size_t offset) const;

  TokenizerKind kind_;
  int64_t vocab_;
  std::vector<char32_t> characters_;             // sorted; kind character only
  std::shared_ptr<const SentencePiece> pieces_;  // kind sentencepiece only
};

}  // namespace minim::models
