#include "minim/tools/run_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>
#include <utility>

#include "minim/core/error.h"

namespace minim {
namespace {

namespace fs = std::filesystem;

/// "run/" is "run".
fs::path without_trailing_slash(const fs::path& path) {
  fs::path normal = path.lexically_normal();
  return normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
}

bool is_within(const fs::path& path, const fs::path& dir) {
  const fs::path inner = fs::weakly_canonical(path), outer = fs::weakly_canonical(dir);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

bool is_run(const fs::path& dir) {
  std::ifstream config(dir / "config.toml");
  for (std::string line; std::getline(config, line);)
    if (line == "[amp]") return true;  // to_toml() writes it
  return fs::exists(dir / "checkpoint" / "MANIFEST");
}

/// What a run leaves that was killed before it wrote its configuration.
bool is_leftover(const fs::path& name) {
  return name == "lock" || name == "checkpoint.tmp" || name == "config.toml.tmp";
}

void refuse_foreign_files(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir))
    if (!is_leftover(entry.path().filename()))
      fail("--out ", dir, " holds '", entry.path().filename().string(),
           "' and is not a run of minim: give a new or an empty directory");
}

/// Whether the open file still has that name: another process may have removed or renamed it.
bool is_still_at(int file, const fs::path& path) {
  struct stat open {
  }, named{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

RunDirectory::RunDirectory(const fs::path& dir) : dir_(without_trailing_slash(dir)) {
  if (fs::exists(dir_) && !fs::is_directory(dir_))
    fail("--out '", dir_.string(), "' is a file: give a directory");
  if (fs::exists(dir_)) lock();
}

void RunDirectory::lock() {
  const fs::path path = dir_ / "lock";
  do {
    if (lock_ >= 0) ::close(lock_);
    lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0)
      fail("the run directory ", dir_, " cannot be written: ", std::strerror(errno),
           "; give another --out or change its permissions");
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      std::string holder;
      std::ifstream(path) >> holder;
      ::close(std::exchange(lock_, -1));
      fail("the run directory ", dir_, " is in use by process ", holder.empty() ? "?" : holder,
           ": wait for its end, or give another --out");
    }
  } while (!is_still_at(lock_, path));
  const std::string id = std::to_string(::getpid()) + '\n';
  if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, id.data(), id.size(), 0) < 0)
    return;  // the lock holds without the number, which is for people
}

void RunDirectory::release() {
  if (lock_ < 0) return;
  std::error_code ignored;
  if (is_still_at(lock_, dir_ / "lock")) fs::remove(dir_ / "lock", ignored);
  ::close(std::exchange(lock_, -1));
}

void RunDirectory::move_aside(const std::vector<std::string>& data, std::ostream& out) {
  const std::string what = "--out '" + dir_.string() + "' holds a run, which would be moved aside";
  for (const std::string& file : data)
    if (fs::exists(file) && is_within(file, dir_))
      fail(what, " with the data '", file, "' in it: give another --out");
  if (is_within(fs::current_path(), dir_))
    fail(what, ", but it is or holds the current directory: give another --out");
  int n = 1;
  while (fs::exists(fs::symlink_status(dir_.string() + "." + std::to_string(n)))) ++n;
  const fs::path aside = dir_.string() + "." + std::to_string(n);
  release();
  fs::rename(dir_, aside);
  out << dir_.string() << " held a run already; it is now " << aside.string() << '\n';
}

void RunDirectory::begin(const std::vector<std::string>& data, std::ostream& out) {
  if (fs::exists(dir_)) is_run(dir_) ? move_aside(data, out) : refuse_foreign_files(dir_);
  fs::create_directories(dir_);
  if (lock_ < 0) lock();
}

}  // namespace minim
