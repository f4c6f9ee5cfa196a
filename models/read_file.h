// models/read_file.h -- a whole file, or all that a pipe has, as bytes.
#pragma once
#include <fstream>
#include <string>

namespace minim::models {

/// Throws Error when it is missing, not a file or a pipe, or may not be read; opens nothing that
/// could wait.
void check_file(const std::string& path, const std::string& what);

/// At its beginning; a pipe without a writer waits for one, with a warning. @param what the file is
/// for, for the message: "data", "tokenizer" ... @param size is set to its bytes, or 0 for a pipe.
/// Throws Error when it is missing, not a file, or cannot be opened.
std::ifstream open_file(const std::string& path, const std::string& what, size_t& size);

/// The whole file. Throws Error as open_file does, and when it cannot be read.
std::string read_file(const std::string& path, const std::string& what);

}  // namespace minim::models
