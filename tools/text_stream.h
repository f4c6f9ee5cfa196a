// tools/text_stream.h -- shows bytes that come one by one as the UTF-8 text they make up.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>

namespace minim {

/// Passes each character on as soon as its last byte is there; a byte that belongs to no character
/// becomes U+FFFD, so what is written is always valid UTF-8.
class TextStream {
 public:
  explicit TextStream(std::ostream& out) : out_(out) {}
  /// An unfinished character at the end becomes U+FFFD too.
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  void write(std::string_view bytes);

 private:
  void pass_on(bool unfinished_too);

  std::ostream& out_;
  std::string pending_;
};

}  // namespace minim
