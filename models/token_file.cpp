#include "minim/models/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>

#include "minim/core/error.h"
#include "minim/models/read_file.h"

namespace minim::models {
namespace {

using Header = std::array<int32_t, 256>;

struct Format {
  int32_t magic, version;
  size_t width;   // bytes of an id
  int64_t vocab;  // of the model that it was made for
};

// As two uint16 ids the magics begin with 55448 and 55729, which no GPT-2 file without a header can
// hold.
constexpr std::array<Format, 2> kFormats = {{{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}}};

const Format* format_of(const std::string& bytes) {
  int32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  for (const Format& format : kFormats)
    if (format.magic == magic) return &format;
  return nullptr;
}

Header checked_header(const std::string& path, const std::string& bytes, const Format& format) {
  Header header;
  if (bytes.size() < sizeof header)
    fail("token file '", path, "' is truncated: its header has ", bytes.size(), " of ",
         sizeof header, " bytes");
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[1] != format.version)
    fail("token file '", path, "' has magic ", format.magic, " with version ", header[1],
         "; expected version ", format.version, ": write it again with the present llm.c");
  const size_t body = bytes.size() - sizeof header;
  if (header[2] < 0 || body != size_t(header[2]) * format.width)
    fail("token file '", path, "' is truncated or damaged: its header says ", header[2],
         " tokens of ", format.width, " bytes, but ", body, " bytes follow it");
  return header;
}

template <class Id>
std::vector<int32_t> checked_ids(const std::string& path, const std::string& bytes, size_t start,
                                 int64_t vocab) {
  const size_t n = (bytes.size() - start) / sizeof(Id);
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) {
    Id id;
    std::memcpy(&id, bytes.data() + start + i * sizeof(Id), sizeof(Id));
    if (int64_t(id) >= vocab)
      fail("token file '", path, "' has token id ", id, " at file offset ", start + i * sizeof(Id),
           " (token ", i, "), but the vocabulary has ", vocab, " ids, 0 to ", vocab - 1,
           ": give the right --vocab, or the right file");
    tokens[i] = int32_t(id);
  }
  return tokens;
}

void check_vocab(int64_t vocab) {
  if (vocab < 1 || vocab > int64_t{1} << 31)
    fail("a vocabulary of ", vocab, " tokens: give --vocab from 1 to 2147483648");
}

TokenFile read_with_header(const std::string& path, const std::string& bytes, const Format& format,
                           std::optional<int64_t> vocab) {
  const Header header = checked_header(path, bytes, format);
  const int64_t known = vocab.value_or(header[3] > 0 ? header[3] : format.vocab);
  const auto ids = format.width == 2 ? checked_ids<uint16_t> : checked_ids<uint32_t>;
  return {ids(path, bytes, sizeof header, known), known};
}

TokenFile read_raw(const std::string& path, const std::string& bytes,
                   std::optional<int64_t> vocab) {
  if (!vocab)
    fail("token file '", path, "' does not begin with llm.c's magic (20240520 or 20240801): if it ",
         "holds plain uint16 tokens (nanoGPT's), give the size of their vocabulary: --vocab N");
  if (bytes.size() % 2)
    fail("token file '", path, "' has an odd size, ", bytes.size(),
         " bytes: uint16 tokens take 2 bytes each; the file is truncated or not a token file");
  return {checked_ids<uint16_t>(path, bytes, 0, *vocab), *vocab};
}

void check_writable(std::span<const int32_t> tokens, int64_t vocab) {
  check_vocab(vocab);
  if (tokens.empty()) fail("there are no tokens to write");
  if (tokens.size() > size_t(std::numeric_limits<int32_t>::max()))
    fail(tokens.size(),
         " tokens do not fit one file, whose header counts up to 2147483647: ", "write several");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] > 0xffff)
      fail("token id ", tokens[i], " at position ", i, " does not fit uint16 (at most 65535): ",
           "this format is for vocabularies up to 65536; use llm.c's uint32 format (magic ",
           "20240801), which minim reads");
    if (tokens[i] < 0 || tokens[i] >= vocab)
      fail("token id ", tokens[i], " at position ", i, " is outside the vocabulary: 0 to ",
           vocab - 1);
  }
}

}  // namespace

TokenFile read_token_file(const std::string& path, std::optional<int64_t> vocab) {
  if (vocab) check_vocab(*vocab);
  const std::string bytes = read_file(path, "token");
  const Format* format = format_of(bytes);
  if (bytes.empty()) fail("token file '", path, "' is empty");
  TokenFile file =
      format ? read_with_header(path, bytes, *format, vocab) : read_raw(path, bytes, vocab);
  if (file.tokens.empty()) fail("token file '", path, "' holds no tokens");
  return file;
}

void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab) {
  check_writable(tokens, vocab);
  const Format& format = kFormats[0];
  const int32_t stated = int32_t(std::min<int64_t>(vocab, std::numeric_limits<int32_t>::max()));
  const Header header = {format.magic, format.version, int32_t(tokens.size()), stated};
  const std::vector<uint16_t> ids(tokens.begin(), tokens.end());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  file.write(reinterpret_cast<const char*>(ids.data()), std::streamsize(ids.size() * 2));
  file.close();
  if (!file) fail("token file '", path, "' cannot be written: check the folder and its free space");
}

}  // namespace minim::models
