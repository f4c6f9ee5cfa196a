#include "minim/models/read_file.h"

#include <filesystem>
#include <fstream>

#include "minim/core/error.h"

namespace minim::models {

std::string read_file(const std::string& path, const std::string& what) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) fail(what, " file '", path, "' does not exist");
  if (std::filesystem::is_directory(path, ignored))
    fail(what, " file '", path, "' is a directory: give a file in it");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff(file.tellg()) : -1;
  if (size < 0) fail(what, " file '", path, "' cannot be opened: check its permissions");
  std::string bytes(size_t(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) fail(what, " file '", path, "' cannot be read");
  return bytes;
}

}  // namespace minim::models
