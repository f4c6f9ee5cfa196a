// models/read_file.h -- a whole file, or all that a pipe has, as bytes.
#pragma once
#include <string>

namespace minim::models {

/// @param what the file is for, for the message: "data", "tokenizer" ... Throws Error when it is
/// missing, not a file, or cannot be read.
std::string read_file(const std::string& path, const std::string& what);

}  // namespace minim::models
