// models/safetensors.h -- named arrays in one file, in the safetensors format
// (https://github.com/huggingface/safetensors#format), readable by every library that knows it.
//
// A file is a little-endian u64 N, N bytes of JSON header, and the arrays' data: little-endian,
// row-major, without holes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minim/core/dtype.h"

namespace minim::models {

/// A named array that somebody else owns.
struct Blob {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  ///< [] is a scalar
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

/// Writes `blobs`, widest dtype first and then by name, so that the same blobs in any order give
/// the same file and every array is aligned to its element size. The file is neither synced nor
/// swapped in: that is AtomicDirectory's work.
/// @throws Error on a name that is doubled, is "__metadata__" or is not UTF-8, on a shape that does
/// not fit the bytes, and when the file cannot be written.
void write_safetensors(const std::filesystem::path& path, std::span<const Blob> blobs,
                       const Metadata& metadata = {});

/// A file that was read and checked whole. It owns the bytes its blobs point to, hence it moves but
/// does not copy.
class SafeTensors {
 public:
  /// The data begins at a multiple of 8 bytes; an array in it is aligned to its element size if its
  /// writer saw to that (write_safetensors does), so take values out with memcpy.
  /// @throws Error naming the file, what was found and what was expected, on anything that is not a
  /// valid file of the dtypes F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 U8 BOOL.
  static SafeTensors read(const std::filesystem::path& path);

  SafeTensors(SafeTensors&&) = default;
  SafeTensors& operator=(SafeTensors&&) = default;

  /// The blob of that name, or nullptr.
  const Blob* find(std::string_view name) const;
  /// Sorted by name.
  std::span<const Blob> blobs() const { return blobs_; }
  const Metadata& metadata() const { return metadata_; }

 private:
  SafeTensors() = default;
  void parse();

  std::string file_;
  std::vector<Blob> blobs_;
  Metadata metadata_;
};

}  // namespace minim::models
