#include "minim/models/read_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "minim/core/allocator.h"
#include "minim/core/error.h"

namespace minim::models {

std::string read_file(const std::string& path, const std::string& what) {
  const auto refuse = [&](const std::string& why) { fail(what, " file '", path, "' ", why); };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) refuse("is a directory: give a file in it");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOENT) refuse("does not exist");
  if (!file) refuse(std::string("cannot be opened: ") + std::strerror(errno));
  std::string bytes;
  if (std::filesystem::is_regular_file(path, ignored))
    bytes.reserve(std::filesystem::file_size(path, ignored));
  std::array<char, 1 << 16> chunk;  // a pipe has no size
  while (file.read(chunk.data(), chunk.size()) || file.gcount() > 0) {
    bytes.append(chunk.data(), size_t(file.gcount()));
    if (bytes.size() > memory::physical() / 4)  // its tokens take four times as many
      refuse("has more bytes than this machine can hold: give a part of it");
  }
  if (file.bad()) refuse(std::string("cannot be read: ") + std::strerror(errno));
  return bytes;
}

}  // namespace minim::models
