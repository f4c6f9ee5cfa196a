// tests/fuzz/fuzz.h -- what the targets share. A target reads any bytes; minim::Error is the one
// way to refuse them. Everything else that leaves it (another exception, a signal, a sanitizer's
// report, more time or memory than libFuzzer allows) is a finding.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "minim/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace minim::fuzz {

template <class Read>
int expect_value_or_error(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
  return 0;
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A directory of this process, in memory where the system has one there.
inline const std::filesystem::path& directory() {
  namespace fs = std::filesystem;
  static const struct Directory {
    fs::path path = (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                    ("minim-fuzz-" + std::to_string(::getpid()));
    Directory() { fs::create_directories(path); }
    ~Directory() { fs::remove_all(path); }
  } made;
  return made.path;
}

/// A file in directory() with these bytes.
inline std::filesystem::path file_of(std::string_view bytes, const char* name) {
  std::filesystem::path path = directory() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace minim::fuzz
