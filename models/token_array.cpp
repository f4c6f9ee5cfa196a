#include "minim/models/token_array.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "minim/core/error.h"

namespace minim::models {

TokenArray::TokenArray(std::vector<int32_t> tokens) : size_(tokens.size()) {
  auto owner = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  const auto* ids = reinterpret_cast<const std::byte*>(owner->data());
  if (size_) pieces_.push_back({{std::move(owner), ids}, sizeof(int32_t), size_, nullptr});
}

/// A mapped file. What was read of it is given back at once: the kernel may map 2 MB around a
/// token, and what stays mapped counts as memory of this process, though the page cache keeps it
/// anyway.
struct TokenArray::Mapping {
  void* at;
  size_t size;
  ~Mapping() { munmap(at, size); }
  void release() const { madvise(at, size, MADV_DONTNEED); }
};

TokenArray TokenArray::mapped(const std::string& path, size_t offset, size_t width, size_t count) {
  const size_t size = offset + width * count;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* at = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  if (file >= 0) close(file);
  if (at == MAP_FAILED) fail("file '", path, "' cannot be mapped: ", std::strerror(error));
  madvise(at, size, MADV_RANDOM);  // sequences lie anywhere: what follows one will not be read
  const auto mapping = std::shared_ptr<const Mapping>(new Mapping{at, size});
  TokenArray tokens;
  tokens.pieces_.push_back(
      {{mapping, static_cast<const std::byte*>(at) + offset}, width, count, mapping});
  tokens.size_ = count;
  return tokens;
}

template <class Id>
void TokenArray::copy(size_t start, std::span<Id> out) const {
  if (start > size_ || out.size() > size_ - start)
    fail("tokens ", start, " to ", start + out.size(), " of ", size_, " cannot be read");
  auto to = out.begin();
  for (const Piece& piece : pieces_) {
    const size_t first = std::min(start, piece.count);
    const size_t n = std::min(piece.count - first, size_t(out.end() - to));
    const auto widen = [&]<class Stored>(const Stored* ids) {
      to = std::transform(ids + first, ids + first + n, to, [](Stored id) { return Id(id); });
    };
    if (piece.width == 2)
      widen(reinterpret_cast<const uint16_t*>(piece.ids.get()));
    else
      widen(reinterpret_cast<const int32_t*>(piece.ids.get()));
    if (piece.mapping && n) piece.mapping->release();
    start -= first;
  }
}
template void TokenArray::copy(size_t, std::span<int32_t>) const;
template void TokenArray::copy(size_t, std::span<int64_t>) const;

std::vector<int32_t> TokenArray::to_vector() const {
  std::vector<int32_t> tokens(size_);
  read(0, tokens);
  return tokens;
}

TokenArray TokenArray::slice(size_t start, size_t count) const {
  if (start > size_ || count > size_ - start)
    fail("tokens ", start, " to ", start + count, " of ", size_, " cannot be taken");
  TokenArray part;
  part.size_ = count;
  for (Piece piece : pieces_) {
    const size_t first = std::min(start, piece.count), n = std::min(piece.count - first, count);
    piece.ids = {piece.ids, piece.ids.get() + first * piece.width};
    piece.count = n;
    if (n) part.pieces_.push_back(piece);
    start -= first, count -= n;
  }
  return part;
}

void TokenArray::append(const TokenArray& more) {
  pieces_.insert(pieces_.end(), more.pieces_.begin(), more.pieces_.end());
  size_ += more.size_;
}

}  // namespace minim::models
