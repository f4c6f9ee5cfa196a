#include "minim/models/sync_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

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

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  std::error_code ignored;
  const fs::file_status there = fs::symlink_status(path, ignored);
  if (fs::exists(there) && !fs::is_regular_file(there))  // a device, a pipe, a link to one
    fail(path, " cannot be written: it is no regular file");
  const fs::path staged = path.string() + ".tmp";
  try {
    std::ofstream file(staged, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), std::streamsize(bytes.size()));
    if (!file.flush()) fail(path, " cannot be written: ", std::strerror(errno));
    sync_path(staged);
    fs::rename(staged, path);
  } catch (const fs::filesystem_error& e) {
    fs::remove(staged, ignored);
    fail(path, " cannot be written: ", e.code().message());
  } catch (...) {
    fs::remove(staged, ignored);
    throw;
  }
  sync_path(parent_of(path));
}

}  // namespace minim::models
