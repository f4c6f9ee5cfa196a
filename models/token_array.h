// models/token_array.h -- token ids as one array, wherever they lie: in memory, or in files, of
// which only what is read takes memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace minim::models {

/// A value: copies share the ids, which never change.
class TokenArray {
 public:
  TokenArray() = default;
  /// Implicit: what reads an array reads a vector. The ids are >= 0.
  TokenArray(std::vector<int32_t> tokens);
  /// `count` ids of `width` bytes (2 or 4, unsigned, little-endian, below 2^31) from byte `offset`
  /// of a file to its end. Read, not mapped: a file that shrank would end the program. Throws Error
  /// when it cannot be opened or has another size.
  static TokenArray in_file(const std::string& path, size_t offset, size_t width, size_t count);

  size_t size() const { return size_; }
  /// Widens tokens start .. start + out.size() - 1. Throws Error when there are fewer, and when the
  /// bytes of a file have changed since it was opened.
  void read(size_t start, std::span<int64_t> out) const { copy(start, out); }
  void read(size_t start, std::span<int32_t> out) const { copy(start, out); }
  std::vector<int32_t> to_vector() const;

  TokenArray slice(size_t start, size_t count) const;
  void append(const TokenArray& more);

  friend bool operator==(const TokenArray& a, const TokenArray& b) {
    return a.to_vector() == b.to_vector();
  }

 private:
  class File;
  struct Piece {
    std::shared_ptr<const std::vector<int32_t>> ids;  // in memory, or
    std::shared_ptr<const File> file;
    size_t width, offset, count;  // bytes of an id, and from the beginning to the first
  };
  template <class Id>
  void copy(size_t start, std::span<Id> out) const;

  std::vector<Piece> pieces_;
  size_t size_ = 0;
};

}  // namespace minim::models
