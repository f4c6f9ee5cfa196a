#include "minim/models/token_array.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "minim/core/error.h"

namespace minim::models {

TokenArray::TokenArray(std::vector<int32_t> tokens) : size_(tokens.size()) {
  if (!size_) return;
  auto ids = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  pieces_.push_back({std::move(ids), nullptr, sizeof(int32_t), 0, size_});
}

/// An open file that does not change while it is in use.
class TokenArray::File {
 public:
  File(std::string path, size_t size)
      : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0 || fstat(file_, &opened_) != 0)
      fail("file '", path_, "' cannot be opened: ", std::strerror(errno));
    if (size_t(opened_.st_size) != size) fail_changed(size, size_t(opened_.st_size));
    written_ = time_of(opened_), hash_ = hash();
    posix_fadvise(file_, 0, 0, POSIX_FADV_RANDOM);  // sequences lie anywhere
  }
  ~File() { close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void read(size_t offset, std::span<std::byte> out) const {
    take(offset, out);
    struct stat now {};
    if (fstat(file_, &now) != 0 || now.st_size != opened_.st_size)
      fail_changed(size_t(opened_.st_size), size_t(now.st_size));
    if (time_of(now) == written_) return;
    if (hash() != hash_) fail_changed(size_t(opened_.st_size), size_t(now.st_size));
    written_ = time_of(now);  // a touch
  }

 private:
  static int64_t time_of(const struct stat& of) {
    return of.st_mtim.tv_sec * 1'000'000'000 + of.st_mtim.tv_nsec;
  }

  void take(size_t offset, std::span<std::byte> out) const {
    for (size_t done = 0; done < out.size();) {
      const ssize_t n = pread(file_, out.data() + done, out.size() - done, off_t(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("file '", path_, "' cannot be read: ", std::strerror(errno));
      if (n == 0) break;
      done += size_t(n);
    }
  }

  /// Of all bytes, eight at a time, and zeros after the last: each step is a bijection (FNV-1a), so
  /// that one changed word changes the result.
  uint64_t hash() const {
    uint64_t hash = 0xcbf29ce484222325u;
    std::vector<uint64_t> words(size_t{1} << 17);
    for (size_t at = 0; at < size_t(opened_.st_size); at += words.size() * sizeof words[0]) {
      std::ranges::fill(words, 0);
      take(at, std::as_writable_bytes(std::span(words)));
      for (const uint64_t word : words) hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
  }

  [[noreturn]] void fail_changed(size_t before, size_t now) const {
    fail("file '", path_, "' was changed while it was in use: it had ", before, " bytes, it has ",
         now, ": put it back, or begin anew; write a new file beside it and rename that");
  }

  std::string path_;
  int file_;
  struct stat opened_ {};
  mutable std::atomic<int64_t> written_{0};  // when; one that is later and the same is as good
  uint64_t hash_ = 0;
};

TokenArray TokenArray::in_file(const std::string& path, size_t offset, size_t width, size_t count) {
  TokenArray tokens;
  auto file = std::make_shared<const File>(path, offset + width * count);
  tokens.pieces_.push_back({nullptr, std::move(file), width, offset, count});
  tokens.size_ = count;
  return tokens;
}

template <class Id>
void TokenArray::copy(size_t start, std::span<Id> out) const {
  if (start > size_ || out.size() > size_ - start)
    fail("tokens ", start, " to ", start + out.size(), " of ", size_, " cannot be read");
  auto to = out.begin();
  alignas(int32_t) std::array<std::byte, 1 << 14> bytes;
  for (const Piece& piece : pieces_) {
    const size_t first = std::min(start, piece.count);
    size_t n = std::min(piece.count - first, size_t(out.end() - to));
    const auto widen = [&]<class Stored>(const Stored* ids, size_t count) {
      to = std::transform(ids, ids + count, to, [](Stored id) { return Id(id); });
    };
    size_t at = piece.offset + first * piece.width;
    if (piece.ids) widen(piece.ids->data() + at / sizeof(int32_t), std::exchange(n, 0));
    while (n > 0) {
      const size_t count = std::min(n, bytes.size() / piece.width);
      piece.file->read(at, std::span(bytes).first(count * piece.width));
      if (piece.width == 2)
        widen(reinterpret_cast<const uint16_t*>(bytes.data()), count);
      else
        widen(reinterpret_cast<const int32_t*>(bytes.data()), count);
      at += count * piece.width, n -= count;
    }
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
    piece.offset += first * piece.width;
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
