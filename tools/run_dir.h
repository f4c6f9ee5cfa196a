// tools/run_dir.h -- the directory that a run writes: held by one process at a time, and never
// taken from what was there before.
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace minim {

/// Holds DIR/lock (flock, which the kernel releases when the process dies) from the moment that DIR
/// exists. The file is removed at the end.
class RunDirectory {
 public:
  /// Locks `dir` if it exists. @throws Error when another process holds it, naming that one's id.
  explicit RunDirectory(const std::filesystem::path& dir);
  ~RunDirectory() { release(); }
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// For a new run: an earlier run there is renamed to the first free DIR.N, which `out` tells;
  /// then DIR is created and locked. @param data the files to read again at a resume: not inside
  /// what is renamed. @throws Error when DIR holds files of something else.
  void begin(const std::vector<std::string>& data, std::ostream& out);

  const std::filesystem::path& path() const { return dir_; }

 private:
  void lock();
  void release();
  void move_aside(const std::vector<std::string>& data, std::ostream& out);

  std::filesystem::path dir_;
  int lock_ = -1;  // file descriptor
};

}  // namespace minim
