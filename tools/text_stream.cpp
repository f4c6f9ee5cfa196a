#include "minim/tools/text_stream.h"

#include <algorithm>
#include <ostream>

#include "minim/core/error.h"
#include "minim/models/utf8.h"

namespace minim {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// True for the beginning of a character whose other bytes may still come.
bool unfinished(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return text.size() < length &&
         std::all_of(text.begin() + 1, text.end(), [](char c) { return (c & 0xc0) == 0x80; });
}

/// The bytes of the first character, or 0 where there is none.
size_t first_character(std::string_view text) {
  size_t end = 0;
  try {
    models::next_code_point(text, end);
  } catch (const Error&) {
    return 0;
  }
  return end;
}

}  // namespace

TextStream::~TextStream() { pass_on(true); }

void TextStream::write(std::string_view bytes) {
  pending_ += bytes;
  pass_on(false);
}

void TextStream::pass_on(bool unfinished_too) {
  while (!pending_.empty() && (unfinished_too || !unfinished(pending_))) {
    const size_t length = first_character(pending_);
    out_ << (length ? std::string_view(pending_).substr(0, length) : kReplacement);
    pending_.erase(0, std::max<size_t>(length, 1));
  }
  out_ << std::flush;
}

}  // namespace minim
