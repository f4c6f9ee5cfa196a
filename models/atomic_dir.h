// models/atomic_dir.h -- a directory (a checkpoint) that is replaced whole: at every instant,
// whatever is killed and whenever the power goes, a complete one is on disk.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace minim::models {

/// How commit() swaps. `exchange` falls back to `two_renames` by itself where the file system
/// cannot exchange.
enum class Swap { exchange, two_renames };

/// Collects files in `target`.tmp and, at commit(), makes them `target`; what `target` was becomes
/// `target`.prev. The names `target`.tmp and `target`.old belong to this class: whatever bears them
/// is removed. One writer at a time for one target.
class AtomicDirectory {
 public:
  /// Creates an empty staging directory (and the parents), after removing one that a killed run
  /// left.
  /// @throws Error when `target` or `target`.prev exists but is not a checkpoint: it would be
  /// replaced and lost.
  explicit AtomicDirectory(std::filesystem::path target, Swap swap = Swap::exchange);
  /// Removes the staging directory if it was not committed.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Where to write the files; they must be closed before commit().
  const std::filesystem::path& staging() const { return staging_; }

  /// Writes the MANIFEST, syncs all of it to disk, and swaps it in. Once only.
  /// @throws Error when the disk refuses; the newest complete checkpoint is then still there.
  void commit();

 private:
  std::filesystem::path target_, staging_, previous_;
  Swap swap_;
  bool committed_ = false;
};

/// The directory to resume from: `target` if its manifest verifies, else `target`.prev if that
/// does; nullopt when neither exists. @param passed_over gets why `target` was not taken, in one
/// line; "" when it was.
/// @throws Error with the reasons when there is something but nothing complete.
std::optional<std::filesystem::path> newest_complete(const std::filesystem::path& target,
                                                     std::string* passed_over = nullptr);

}  // namespace minim::models
