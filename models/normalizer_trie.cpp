#include "minim/models/normalizer_trie.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "minim/core/error.h"

namespace minim::models {
namespace {

/// A base-128 number of protobuf, taken from the front; 0 at the end.
uint64_t take_varint(std::string_view& bytes) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = uint8_t(bytes.front());
    bytes.remove_prefix(1);
    v |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return v;
}

std::string_view take(std::string_view& bytes, uint64_t n) {
  const std::string_view front = bytes.substr(0, n);
  bytes.remove_prefix(front.size());
  return front;
}

/// All fields of a message that have this number and are texts or messages, one after the other:
/// protobuf takes the last text, and joins messages.
std::vector<std::string_view> fields(std::string_view message, uint64_t number) {
  std::vector<std::string_view> found;
  while (!message.empty()) {
    const uint64_t tag = take_varint(message);
    switch (tag % 8) {
      case 0:
        take_varint(message);
        break;
      case 1:
        take(message, 8);
        break;
      case 2: {
        const std::string_view value = take(message, take_varint(message));
        if (tag / 8 == number) found.push_back(value);
        break;
      }
      case 5:
        take(message, 4);
        break;
      default:
        return found;  // groups, which a ModelProto does not have
    }
  }
  return found;
}

/// A unit of the double array, as Darts-clone packs it.
struct Unit {
  uint32_t u;
  uint32_t label() const { return u & (uint32_t{1} << 31 | 0xff); }
  uint32_t offset() const { return (u >> 10) << ((u & (uint32_t{1} << 9)) >> 6); }
  bool has_leaf() const { return u >> 8 & 1; }
  uint32_t value() const { return u & ~(uint32_t{1} << 31); }
};

constexpr const char* kDamaged = "the SentencePiece model is damaged: its normalizer's table ";

void check_trie(std::string_view trie, std::string_view texts) {
  std::vector<Unit> units(trie.size() / sizeof(Unit));
  if (units.empty()) fail(kDamaged, "is empty");
  std::memcpy(units.data(), trie.data(), units.size() * sizeof(Unit));
  std::vector<bool> seen(units.size());
  std::vector<uint32_t> todo{0};
  seen[0] = true;
  while (!todo.empty()) {
    const uint32_t at = todo.back(), base = at ^ units[at].offset();
    todo.pop_back();
    if (base >= units.size()) fail(kDamaged, "leads outside of itself at unit ", at);
    if (at != 0 && units[at].has_leaf() && units[base].value() >= texts.size())
      fail(kDamaged, "names a text outside of its texts at unit ", at);
    for (uint32_t c = 1; c < 256; ++c) {
      const uint32_t next = base ^ c;
      if (next >= units.size()) fail(kDamaged, "leads outside of itself at unit ", at);
      if (units[next].label() != c || seen[next]) continue;
      seen[next] = true;
      todo.push_back(next);
    }
  }
}

void check_charsmap(std::string_view map) {
  uint32_t size = 0;
  if (map.size() < sizeof size) fail(kDamaged, "has ", map.size(), " bytes");
  std::memcpy(&size, map.data(), sizeof size);
  map.remove_prefix(sizeof size);
  if (size >= map.size()) fail(kDamaged, "should have more than ", size, " bytes");
  const std::string_view texts = map.substr(size);
  if (texts.back() != '\0') fail(kDamaged, "ends within a text");
  check_trie(map.substr(0, size), texts);
}

}  // namespace

void check_normalizer_trie(std::string_view model) {
  constexpr uint64_t kSpecs[] = {3, 5};  // ModelProto.normalizer_spec, .denormalizer_spec
  constexpr uint64_t kCharsMap = 2;      // NormalizerSpec.precompiled_charsmap
  for (uint64_t spec : kSpecs)
    for (std::string_view normalizer : fields(model, spec))
      for (std::string_view map : fields(normalizer, kCharsMap))
        if (!map.empty()) check_charsmap(map);
}

}  // namespace minim::models
