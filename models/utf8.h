// models/utf8.h -- UTF-8 to Unicode code points and back (RFC 3629).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace minim::models {

/// The code point at `offset`, which moves behind it. Throws Error, with the offset, for what RFC
/// 3629 forbids: stray or missing continuation bytes, overlong forms, surrogates, code points over
/// U+10FFFF.
char32_t next_code_point(std::string_view text, size_t& offset);

bool is_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t code_point);

/// For messages: U+00E9 'é'; control characters by number only.
std::string character_name(char32_t code_point);

}  // namespace minim::models
