#include "minim/models/sync_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "minim/core/error.h"

namespace minim::models {

namespace fs = std::filesystem;

void sync_path(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const int why = errno;
  if (file >= 0) ::close(file);
  // Some network file systems cannot sync a directory and say EINVAL; there is nothing better to do
  // there.
  if (!synced && !(file >= 0 && why == EINVAL && fs::is_directory(path)))
    fail(path, " cannot be synced to disk: ", std::strerror(why));
}

void sync_tree(const fs::path& dir) {
  for (const auto& entry : fs::recursive_directory_iterator(dir)) sync_path(entry.path());
  sync_path(dir);
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

DirectoryLock::DirectoryLock(const fs::path& dir)
    : file_(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) continue;
}

DirectoryLock::~DirectoryLock() {
  if (file_ >= 0) ::close(file_);
}

int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return errno;
    if (n > 0) bytes.remove_prefix(size_t(n));
  }
  return 0;
}

StagedFile::StagedFile(fs::path path, std::string_view bytes)
    : path_(std::move(path)), staged_(path_.string() + ".tmp") {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(path_, ignored);
  if (fs::exists(there) && !fs::is_regular_file(there))  // a device, a pipe, a link to one
    fail("'", path_.string(), "' cannot be written: it is no regular file");
  ::unlink(staged_.c_str());  // what a kill left, or a link that somebody put there
  const int file =
      ::open(staged_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  int why = file < 0 ? errno : write_all(file, bytes);
  if (why == 0 && ::fsync(file) != 0) why = errno;
  if (file >= 0) ::close(file);
  if (why == 0) return;
  if (file >= 0) fs::remove(staged_, ignored);
  fail("'", path_.string(), "' cannot be written: ", std::strerror(why));
}

StagedFile::~StagedFile() {
  std::error_code ignored;
  if (!staged_.empty()) fs::remove(staged_, ignored);
}

void StagedFile::commit() {
  std::error_code why;
  fs::rename(staged_, path_, why);
  if (why) fail("'", path_.string(), "' cannot be written: ", why.message());
  staged_.clear();
  sync_path(parent_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  StagedFile(path, bytes).commit();
}

}  // namespace minim::models
