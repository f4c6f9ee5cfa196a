#include "minim/models/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>

#include "minim/core/allocator.h"
#include "minim/core/error.h"
#include "minim/core/warn.h"

namespace minim::models {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& path, const std::string& why) {
  fail(what, " file '", path, "' ", why);
}

bool is_terminal_or_null(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const bool is = file >= 0 && (::isatty(file) || std::filesystem::path(path) == "/dev/null");
  if (file >= 0) ::close(file);
  return is;
}

size_t size_of_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;
  return size_t(std::filesystem::file_size(path, ignored));
}

/// A pipe that nobody writes to keeps its reader waiting, who says so after a second.
std::ifstream open_pipe(const std::string& path, const std::string& what) {
  std::promise<void> opened;
  const auto tell = std::async(std::launch::async, [&, is_open = opened.get_future()] {
    if (is_open.wait_for(std::chrono::seconds(1)) == std::future_status::timeout)
      warn(what, " file '", path, "' is a pipe that nobody has opened to write to: waiting for it");
  });
  std::ifstream file(path, std::ios::binary);
  opened.set_value();
  return file;
}

}  // namespace

void check_file(const std::string& path, const std::string& what) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    refuse(what, path, "is a directory: give a file in it");
  const auto kind = std::filesystem::status(path, ignored).type();
  if (kind == std::filesystem::file_type::block ||
      (kind == std::filesystem::file_type::character && !is_terminal_or_null(path)))
    refuse(what, path, "is a device, which may have no end: give a file or a pipe");
  if (::access(path.c_str(), R_OK) == 0) return;
  if (errno == ENOENT) refuse(what, path, "does not exist");
  refuse(what, path, std::string("cannot be opened: ") + std::strerror(errno));
}

std::ifstream open_file(const std::string& path, const std::string& what, size_t& size) {
  check_file(path, what);
  if (std::filesystem::is_fifo(path)) return open_pipe(path, what);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(what, path, std::string("cannot be opened: ") + std::strerror(errno));
  size = size_of_file(path);
  return file;
}

std::string read_file(const std::string& path, const std::string& what) {
  size_t size = 0;
  std::ifstream file = open_file(path, what, size);
  std::string bytes;
  bytes.reserve(size);
  std::array<char, 1 << 16> chunk;  // a pipe has no size
  while (file.read(chunk.data(), chunk.size()) || file.gcount() > 0) {
    bytes.append(chunk.data(), size_t(file.gcount()));
    if (bytes.size() > memory::physical() / 4)  // its tokens take four times as many
      refuse(what, path, "has more bytes than this machine can hold: give a part of it");
  }
  if (file.bad()) refuse(what, path, std::string("cannot be read: ") + std::strerror(errno));
  return bytes;
}

}  // namespace minim::models
