// models/manifest.h -- the list of a checkpoint's files with sizes and checksums, by which a
// checkpoint that is cut short, damaged or not one at all is told from a good one.
#pragma once
#include <filesystem>

namespace minim::models {

inline constexpr const char* kManifestName = "MANIFEST";

/// Writes `dir`/MANIFEST for all files below `dir`: JSON with format "minim-checkpoint", version 1,
/// and for each file its size in bytes and its 64-bit FNV-1a hash in hex. @throws Error when there
/// is something that is no file or directory.
void write_manifest(const std::filesystem::path& dir);

/// Checks that every listed file is there with its size and hash; files that are not listed are
/// ignored.
/// @throws Error naming the file, what was found and what was expected.
void verify_manifest(const std::filesystem::path& dir);

}  // namespace minim::models
