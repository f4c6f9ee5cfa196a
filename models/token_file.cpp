#include "minim/models/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>

#include "minim/core/error.h"
#include "minim/models/read_file.h"
#include "minim/models/sync_file.h"

namespace minim::models {
namespace {

using Header = std::array<int32_t, 256>;

struct Format {
  const char* name;
  int32_t magic, version;
  size_t width;   // bytes of an id
  int64_t vocab;  // of the model that it was made for
};

// As two uint16 ids the magics begin with 55448 and 55729, which no GPT-2 file without a header can
// hold.
constexpr std::array<Format, 2> kFormats = {
    {{"llm.c GPT-2", 20240520, 1, 2, 50257}, {"llm.c Llama-3", 20240801, 7, 4, 128256}}};

/// A file that is being checked: its bytes pass by, and are not kept.
struct Checked {
  const std::string& path;
  std::ifstream stream;
  size_t size = 0;
};

const Format* format_of(Checked& file, Header& header) {
  file.stream.read(reinterpret_cast<char*>(header.data()), sizeof header);
  file.stream.clear();
  for (const Format& format : kFormats)
    if (file.size >= sizeof format.magic && format.magic == header[0]) return &format;
  return nullptr;
}

void check_header(const Checked& file, const Header& header, const Format& format) {
  if (file.size < sizeof header)
    fail("token file '", file.path, "' is truncated: its header has ", file.size, " of ",
         sizeof header, " bytes");
  if (header[1] != format.version)
    fail("token file '", file.path, "' has magic ", format.magic, " with version ", header[1],
         "; expected version ", format.version, ": write it again with the present llm.c");
  const size_t body = file.size - sizeof header;
  if (header[2] < 0 || body != size_t(header[2]) * format.width)
    fail("token file '", file.path, "' is truncated or damaged: its header says ", header[2],
         " tokens of ", format.width, " bytes, but ", body, " bytes follow it");
}

template <class Id>
void check_ids(Checked& file, size_t start, int64_t vocab) {
  if (vocab > std::numeric_limits<Id>::max()) return;  // every id is below it
  std::vector<Id> ids(size_t{1} << 18);
  file.stream.seekg(std::streamoff(start));
  for (size_t at = start; at < file.size; at += ids.size() * sizeof(Id)) {
    ids.resize(std::min(ids.size(), (file.size - at) / sizeof(Id)));
    if (!file.stream.read(reinterpret_cast<char*>(ids.data()),
                          std::streamsize(ids.size() * sizeof(Id))))
      fail("token file '", file.path, "' cannot be read");
    if (int64_t(*std::ranges::max_element(ids)) < vocab) continue;
    const auto wrong = std::ranges::find_if(ids, [&](Id id) { return int64_t(id) >= vocab; });
    const size_t offset = at + size_t(wrong - ids.begin()) * sizeof(Id);
    fail("token file '", file.path, "' has token id ", *wrong, " at file offset ", offset,
         " (token ", (offset - start) / sizeof(Id), "), but the vocabulary has ", vocab,
         " ids, 0 to ", vocab - 1, ": give the right --vocab, or the right file");
  }
}

void check_vocab(int64_t vocab) {
  if (vocab < 1 || vocab > int64_t{1} << 31)
    fail("a vocabulary of ", vocab, " tokens: give --vocab from 1 to 2147483648");
}

void check_raw(const Checked& file, const std::optional<int64_t>& vocab) {
  if (!vocab)
    fail("token file '", file.path, "' does not begin with llm.c's magic (20240520 or 20240801): ",
         "if it holds plain uint16 tokens (nanoGPT's), give the size of their vocabulary: ",
         "--vocab N");
  if (file.size % 2)
    fail("token file '", file.path, "' has an odd size, ", file.size,
         " bytes: uint16 tokens take 2 bytes each; the file is truncated or not a token file");
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
  Checked file{path, {}};
  file.stream = open_file(path, "token", file.size);
  if (file.size == 0) fail("token file '", path, "' is empty");
  Header header{};
  const Format* format = format_of(file, header);
  format ? check_header(file, header, *format) : check_raw(file, vocab);
  if (format && !vocab) vocab = header[3] > 0 ? header[3] : format->vocab;
  const size_t start = format ? sizeof header : 0, width = format ? format->width : 2;
  if (file.size == start) fail("token file '", path, "' holds no tokens");
  (width == 2 ? check_ids<uint16_t> : check_ids<uint32_t>)(file, start, *vocab);
  return {TokenArray::in_file(path, start, width, (file.size - start) / width), *vocab,
          format ? format->name : "plain", width, file.size};
}

std::string token_file_bytes(std::span<const int32_t> tokens, int64_t vocab) {
  check_writable(tokens, vocab);
  const Format& format = kFormats[0];
  const int32_t stated = int32_t(std::min<int64_t>(vocab, std::numeric_limits<int32_t>::max()));
  const Header header = {format.magic, format.version, int32_t(tokens.size()), stated};
  std::string bytes(sizeof header + tokens.size() * sizeof(uint16_t), '\0');
  std::memcpy(bytes.data(), header.data(), sizeof header);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = uint16_t(tokens[i]);
    std::memcpy(bytes.data() + sizeof header + i * sizeof id, &id, sizeof id);
  }
  return bytes;
}

void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab) {
  write_file_atomically(path, token_file_bytes(tokens, vocab));
}

}  // namespace minim::models
