// models/reason.h -- what another library's exception says, without that library's own wording.
#pragma once
#include <exception>
#include <string>

namespace minim::models {

/// Of a file system's error the paths and the system's reason; of others the text, without a tag
/// such as "[json.exception.parse_error.101]".
std::string reason(const std::exception& error);

}  // namespace minim::models
