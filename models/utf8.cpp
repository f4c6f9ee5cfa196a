#include "minim/models/utf8.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "minim/core/error.h"

namespace minim::models {
namespace {

struct Form {
  uint8_t mask, lead;  // of the first byte
  int more;            // continuation bytes
  char32_t least;      // a smaller code point is an overlong form
};

constexpr std::array<Form, 4> kForms = {{
    {0x80, 0x00, 0, 0x0},
    {0xe0, 0xc0, 1, 0x80},
    {0xf0, 0xe0, 2, 0x800},
    {0xf8, 0xf0, 3, 0x10000},
}};

constexpr bool is_surrogate(char32_t c) { return c >= 0xd800 && c <= 0xdfff; }

[[noreturn]] void fail_at(std::string_view text, size_t offset) {
  char byte[3];
  std::snprintf(byte, sizeof byte, "%02x", unsigned(uint8_t(text[offset])));
  fail("invalid UTF-8 at byte offset ", offset, " (byte 0x", byte,
       "): characters need valid UTF-8; convert the text, or use the byte tokenizer "
       "(--tokenizer byte)");
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& offset) {
  const uint8_t first = uint8_t(text[offset]);
  for (const Form& form : kForms) {
    if ((first & form.mask) != form.lead) continue;
    char32_t c = first & uint8_t(~form.mask);
    for (int i = 1; i <= form.more; ++i) {
      if (offset + i >= text.size() || (uint8_t(text[offset + i]) & 0xc0) != 0x80)
        fail_at(text, offset);
      c = c << 6 | (uint8_t(text[offset + i]) & 0x3f);
    }
    if (c < form.least || c > 0x10ffff || is_surrogate(c)) fail_at(text, offset);
    offset += 1 + form.more;
    return c;
  }
  fail_at(text, offset);
}

bool is_utf8(std::string_view text) try {
  for (size_t at = 0; at < text.size();) next_code_point(text, at);
  return true;
} catch (const Error&) {
  return false;
}

void append_utf8(std::string& text, char32_t c) {
  size_t form = 0;
  while (form + 1 < kForms.size() && c >= kForms[form + 1].least) ++form;
  const int more = kForms[form].more;
  text += char(kForms[form].lead | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) text += char(0x80 | (c >> (6 * i) & 0x3f));
}

std::string character_name(char32_t c) {
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", unsigned(c));
  std::string name = number;
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return name;
  name += " '";
  append_utf8(name, c);
  return name + "'";
}

}  // namespace minim::models
