#include "minim/models/read_file.h"

#include <filesystem>

#include "minim/core/error.h"

namespace minim::models {

std::ifstream open_file(const std::string& path, const std::string& what, size_t& size) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) fail(what, " file '", path, "' does not exist");
  if (std::filesystem::is_directory(path, ignored))
    fail(what, " file '", path, "' is a directory: give a file in it");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff end = file ? std::streamoff(file.tellg()) : -1;
  if (end < 0) fail(what, " file '", path, "' cannot be opened: check its permissions");
  file.seekg(0);
  size = size_t(end);
  return file;
}

std::string read_file(const std::string& path, const std::string& what) {
  size_t size = 0;
  std::ifstream file = open_file(path, what, size);
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), std::streamsize(size)))
    fail(what, " file '", path, "' cannot be read");
  return bytes;
}

}  // namespace minim::models
