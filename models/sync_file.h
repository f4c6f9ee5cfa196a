// models/sync_file.h -- putting files on the disk for good, and swapping a new one in whole.
#pragma once
#include <filesystem>
#include <string_view>

namespace minim::models {

/// fsync of a file or a directory (for a directory: the names in it). @throws Error when that
/// fails.
void sync_path(const std::filesystem::path& path);

/// sync_path of everything below `dir` and of `dir` itself.
void sync_tree(const std::filesystem::path& dir);

/// The directory that holds `path`: "." for a bare name.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// Holds a directory against others that do so, in this process or another: flock, which ends with
/// the process. Where the file system has none, nothing is held.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& dir);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int file_;
};

/// New bytes for `path`, written to `path`.tmp and synced: a full disk shows now. A file that is
/// there is not followed, if it is a link, but replaced.
class StagedFile {
 public:
  /// @throws Error when they cannot be written, or `path` is a link, a device or anything but a
  /// regular file.
  StagedFile(std::filesystem::path path, std::string_view bytes);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  /// They become `path`, in one step. @throws Error when the disk refuses.
  void commit();

 private:
  std::filesystem::path path_, staged_;
};

/// Writes all of them to an open file. @return 0, or why not (an errno).
int write_all(int file, std::string_view bytes);

/// Replaces `path` such that after a kill or a power loss it has either the old bytes or all the
/// new ones: written to `path`.tmp, synced, renamed. @throws Error when it cannot be written,
/// or is a link, a device or anything but a regular file; `path` is then as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace minim::models
