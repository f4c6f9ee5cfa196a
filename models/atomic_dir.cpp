#include "minim/models/atomic_dir.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>

#include "minim/core/error.h"
#include "minim/models/manifest.h"
#include "minim/models/reason.h"
#include "minim/models/sync_file.h"

namespace minim::models {
namespace {

namespace fs = std::filesystem;

fs::path without_trailing_slash(fs::path path) {
  path = path.lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

fs::path beside(const fs::path& target, const char* suffix) {
  return without_trailing_slash(target).string() + suffix;
}

void check_replaceable(const fs::path& dir) {
  if (!fs::exists(fs::symlink_status(dir))) return;
  if (fs::is_directory(fs::symlink_status(dir)) &&
      (fs::is_empty(dir) || fs::is_regular_file(dir / kManifestName)))
    return;
  fail(dir,
       " exists and is not a checkpoint; it would be replaced: move it or choose another name");
}

bool is_complete(const fs::path& dir) try {
  verify_manifest(dir);
  return true;
} catch (const Error&) {
  return false;
}

/// Swaps two names in one step. @return false when the file system cannot do that.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw fs::filesystem_error("exchange", a, b, std::error_code(errno, std::generic_category()));
}

void rename_for_good(const fs::path& from, const fs::path& to) {
  fs::rename(from, to);
  sync_path(parent_of(to));
}

/// `staged` becomes `target`, `target` becomes `previous`; each of these two names always has
/// something complete.
bool rotate_by_exchange(const fs::path& staged, const fs::path& target, const fs::path& previous) {
  if (!exchange(staged, target)) return false;
  sync_path(parent_of(target));
  if (!fs::exists(previous)) {
    rename_for_good(staged, previous);
  } else {
    exchange(staged, previous);
    sync_path(parent_of(target));
    fs::remove_all(staged);
  }
  return true;
}

fs::path doomed(const fs::path& target) { return beside(target, ".old"); }

/// Removes `dir` under another name, so that a kill halfway leaves no half of it under its own.
void discard(const fs::path& dir, const fs::path& last_name) {
  if (!fs::exists(dir)) return;
  fs::remove_all(last_name);
  rename_for_good(dir, last_name);
  fs::remove_all(last_name);
}

/// The same with plain renames: between them `target` is missing, but `previous` is complete.
void rotate_by_renames(const fs::path& staged, const fs::path& target, const fs::path& previous) {
  if (is_complete(target)) {
    discard(previous, doomed(target));
    rename_for_good(target, previous);
  } else {
    discard(target, doomed(target));
  }
  rename_for_good(staged, target);
}

}  // namespace

AtomicDirectory::AtomicDirectory(fs::path target, Swap swap)
    : target_(without_trailing_slash(std::move(target))),
      staging_(beside(target_, ".tmp")),
      previous_(beside(target_, ".prev")),
      swap_(swap) {
  try {
    check_replaceable(target_);
    check_replaceable(previous_);
    fs::remove_all(staging_);
    fs::remove_all(doomed(target_));
    fs::create_directories(staging_);
  } catch (const fs::filesystem_error& e) {
    fail("checkpoint ", target_, " cannot be begun: ", reason(e));
  }
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(staging_, ignored);
}

void AtomicDirectory::commit() try {
  if (committed_) fail("checkpoint ", target_, " is committed already: make a new AtomicDirectory");
  write_manifest(staging_);
  sync_tree(staging_);
  if (!fs::exists(target_))
    rename_for_good(staging_, target_);
  else if (swap_ == Swap::two_renames || !rotate_by_exchange(staging_, target_, previous_))
    rotate_by_renames(staging_, target_, previous_);
  committed_ = true;
} catch (const fs::filesystem_error& e) {
  fail("checkpoint ", target_, " cannot be committed: ", reason(e));
}

std::optional<fs::path> newest_complete(const fs::path& target, std::string* passed_over) {
  std::string reasons;
  for (const char* suffix : {"", ".prev"}) {
    const fs::path dir = beside(target, suffix);
    if (!fs::exists(dir)) continue;
    try {
      verify_manifest(dir);
      if (passed_over) *passed_over = reasons.empty() ? "" : reasons.substr(3);
      if (passed_over && reasons.empty() && *suffix) *passed_over = target.string() + " is missing";
      return dir;
    } catch (const Error& e) {
      reasons += std::string("\n  ") + e.what();
    }
  }
  if (!reasons.empty()) fail("there is no complete checkpoint at ", target, ":", reasons);
  return std::nullopt;
}

}  // namespace minim::models
