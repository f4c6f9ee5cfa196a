// tools/run_dir.h -- the directory that a run writes: held by one process at a time, and never
// taken from what was there before.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace minim {

/// Holds DIR/lock (flock, which the kernel releases when the process dies) from its making to its
/// end, when the file is removed. Nothing is moved or written without it.
class RunDirectory {
 public:
  /// Creates `dir`, if need be, and locks it; a link is followed once, here. @throws Error when
  /// another process holds it, naming that one's id, and when it cannot be written or its path
  /// leaves no room for the names in it.
  explicit RunDirectory(const std::filesystem::path& dir);
  /// Removes the folders that it created, where nothing was begun in them.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// For a new run: an earlier run there is renamed to the first free DIR.N, which `out` tells, and
  /// DIR created and locked anew. @param data the files to read again at a resume: not inside
  /// what is renamed. @throws Error when DIR holds files of something else.
  void begin(const std::vector<std::string>& data, std::ostream& out);

  /// The folders that were created are to stay.
  void keep() { created_.clear(); }

  const std::filesystem::path& path() const { return dir_; }

 private:
  void create();
  int lock() const;
  static void release(int lock, const std::filesystem::path& dir);
  void move_aside(const std::vector<std::string>& data, std::ostream& out);

  std::filesystem::path dir_;
  std::vector<std::filesystem::path> created_;  // outermost first
  int lock_ = -1;                               // file descriptor
};

}  // namespace minim
