#include "minim/models/tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "minim/models/json.h"
#include "minim/models/reason.h"
#include "minim/models/utf8.h"

namespace minim::models {
namespace {

constexpr std::string_view kFormat = "minim.tokenizer.v1";
constexpr std::array<std::string_view, 4> kKindNames = {"byte", "character", "none",
                                                        "sentencepiece"};

std::vector<char32_t> distinct_characters(std::string_view text) {
  std::vector<bool> seen(0x110000);
  for (size_t offset = 0; offset < text.size();) seen[next_code_point(text, offset)] = true;
  std::vector<char32_t> characters;
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) characters.push_back(c);
  return characters;
}

std::vector<int32_t> parse_ids(std::string_view text, int64_t vocab) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of(kSpace); at < text.size();) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || stop != word.data() + word.size() || id < 0 || id >= vocab)
      fail("'", word, "' at byte offset ", at, " is not a token id: this model was trained on a ",
           "token file without a text; give ids from 0 to ", vocab - 1, " separated by spaces");
    ids.push_back(id);
    at = text.find_first_not_of(kSpace, end);
  }
  return ids;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) hex += {kDigits[uint8_t(c) >> 4], kDigits[uint8_t(c) & 15]};
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    uint8_t byte = 0;
    const char *end = hex.data() + i + 2, *stop = std::from_chars(end - 2, end, byte, 16).ptr;
    if (stop != end) fail("its model is not in hexadecimal digits");
    bytes += char(byte);
  }
  return bytes;
}

}  // namespace

Tokenizer Tokenizer::bytes() { return {TokenizerKind::byte, 256}; }

Tokenizer Tokenizer::characters(std::string_view text) {
  if (text.empty()) fail("a character tokenizer needs a text with at least one character");
  Tokenizer t(TokenizerKind::character, 0);
  t.characters_ = distinct_characters(text);
  t.vocab_ = int64_t(t.characters_.size());
  return t;
}

Tokenizer Tokenizer::sentencepiece(std::string model) {
  Tokenizer t(TokenizerKind::sentencepiece, 0);
  t.pieces_ = load_sentence_piece(std::move(model));
  t.vocab_ = t.pieces_->vocab;
  return t;
}

bool Tokenizer::operator==(const Tokenizer& other) const {
  const auto model = [](const Tokenizer& t) {
    return t.pieces_ ? std::string_view(t.pieces_->model) : std::string_view();
  };
  return kind_ == other.kind_ && vocab_ == other.vocab_ && characters_ == other.characters_ &&
         model(*this) == model(other);
}

Tokenizer Tokenizer::none(int64_t vocab) {
  if (vocab < 1 || vocab > int64_t{1} << 31)
    fail("a vocabulary of ", vocab, " tokens: give --vocab from 1 to 2147483648");
  return {TokenizerKind::none, vocab};
}

int32_t Tokenizer::id_of(char32_t c, size_t offset) const {
  const auto at = std::ranges::lower_bound(characters_, c);
  if (at == characters_.end() || *at != c)
    fail("character ", character_name(c), " at byte offset ", offset, " is not among the ", vocab_,
         " characters of the training text: remove it, or train with the byte tokenizer "
         "(--tokenizer byte)");
  return int32_t(at - characters_.begin());
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (kind_ == TokenizerKind::none) return parse_ids(text, vocab_);
  if (pieces_) return pieces_->encode(text);
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  if (kind_ == TokenizerKind::byte) {
    for (char c : text) tokens.push_back(uint8_t(c));
    return tokens;
  }
  for (size_t offset = 0; offset < text.size();) {
    const size_t at = offset;
    tokens.push_back(id_of(next_code_point(text, offset), at));
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_)
      fail("token id ", tokens[i], " at position ", i, " is outside the vocabulary: 0 to ",
           vocab_ - 1);
    if (pieces_) continue;
    if (i && kind_ == TokenizerKind::none) text += " ";
    text += text_of(tokens[i]);
  }
  return pieces_ ? pieces_->decode(tokens) : text;
}

std::string Tokenizer::text_of(int32_t id) const {
  if (id < 0 || id >= vocab_)
    fail("token id ", id, " is outside the vocabulary: 0 to ", vocab_ - 1);
  if (pieces_) return pieces_->text_of(id);
  if (kind_ == TokenizerKind::none) return std::to_string(id);
  if (kind_ == TokenizerKind::byte) return {char(id)};
  std::string text;
  append_utf8(text, characters_[size_t(id)]);
  return text;
}

std::string Tokenizer::kind_name() const { return std::string(kKindNames[size_t(kind_)]); }

std::string Tokenizer::alphabet() const {
  std::string all;
  for (char32_t c : characters_) append_utf8(all, c);
  return all;
}

std::string Tokenizer::to_json() const {
  JsonText json;
  json.add_value("format", kFormat).add_value("kind", kind_name()).add_value("vocab", vocab_);
  if (kind_ == TokenizerKind::character) json.add_value("characters", alphabet());
  if (pieces_) json.add_value("model", to_hex(pieces_->model));
  return json.text() + "\n";
}

Tokenizer Tokenizer::from_json(const std::string& text) {
  try {
    const nlohmann::json json = parse_json(text);
    if (json.at("format") != kFormat) fail("the format is ", json.at("format").dump());
    const std::string kind = json.at("kind").get<std::string>();
    const int64_t vocab = integer_in(json, "vocab");
    Tokenizer t = kind == "byte"        ? bytes()
                  : kind == "character" ? characters(json.at("characters").get<std::string>())
                  : kind == "none"      ? none(vocab)
                  : kind == "sentencepiece"
                      ? sentencepiece(from_hex(json.at("model").get<std::string>()))
                      : throw Error("the kind is \"" + kind + "\"");
    if (t.vocab() != vocab) fail("it says ", vocab, " tokens but has ", t.vocab());
    return t;
  } catch (const std::exception& error) {
    fail("not a tokenizer of minim (expected a JSON object with format \"", kFormat,
         "\", kind, vocab): ", reason(error));
  }
}

}  // namespace minim::models
