#include "minim/tools/run_dir.h"

#include <fcntl.h>
#include <limits.h>
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

/// Whether it is a checkpoint, will be one, or lies in one.
bool is_in_checkpoint(const fs::path& dir) {
  for (fs::path at = fs::weakly_canonical(fs::absolute(dir)); at != at.root_path();
       at = at.parent_path())
    if (fs::exists(at / "MANIFEST") ||
        (at.filename().string().starts_with("checkpoint") && is_run(at.parent_path())))
      return true;
  return false;
}

/// What a run leaves that was killed before it wrote its configuration.
bool is_leftover(const fs::path& name) {
  return name == "lock" || name == "checkpoint.tmp" || name == "config.toml.tmp";
}

// The longest of the names in a run's directory, and what is put behind its own name.
constexpr const char* kLongestName = "/checkpoint.prev/model_ema.safetensors";
constexpr size_t kSuffix = 4;  // ".999"

/// The innermost first, as far as nothing is in them.
void remove_empty(std::vector<fs::path>& folders) {
  std::error_code full;
  for (; !folders.empty(); folders.pop_back()) fs::remove(folders.back(), full);
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
  const size_t length = fs::absolute(dir_).string().size() + std::strlen(kLongestName);
  if (length >= PATH_MAX || dir_.filename().string().size() + kSuffix > NAME_MAX)
    fail("--out '", dir_.string(), "' is too long a path for the files in it: give a shorter one");
  if (fs::is_symlink(dir_) && fs::exists(dir_)) dir_ = fs::canonical(dir_);
  if (fs::exists(dir_) && !fs::is_directory(dir_))
    fail("--out '", dir_.string(), "' is a file: give a directory");
  if (is_in_checkpoint(dir_))
    fail("--out '", dir_.string(),
         "' is a checkpoint of a run, or lies in one: give another directory, or the run's own");
  create();
  try {
    lock_ = lock();
  } catch (...) {
    remove_empty(created_);
    throw;
  }
}

RunDirectory::~RunDirectory() {
  release(lock_, dir_);
  remove_empty(created_);
}

void RunDirectory::create() try {
  std::vector<fs::path> missing;
  for (fs::path at = dir_; !at.empty() && !fs::exists(at); at = at.parent_path())
    missing.insert(missing.begin(), at);
  for (const fs::path& folder : missing)
    if (fs::create_directory(folder)) created_.push_back(folder);
} catch (const fs::filesystem_error&) {
  remove_empty(created_);
  throw;
}

int RunDirectory::lock() const {
  const fs::path path = dir_ / "lock";
  int file = -1;
  do {
    if (file >= 0) ::close(file);
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0)
      fail("the run directory ", dir_,
           " cannot be written: its lock: ", errno == ELOOP ? "it is a link" : std::strerror(errno),
           "; give another --out or change its permissions");
    if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      std::string holder;
      std::ifstream(path) >> holder;
      ::close(file);
      fail("the run directory ", dir_, " is in use by process ", holder.empty() ? "?" : holder,
           ": wait for its end, or give another --out");
    }
  } while (!is_still_at(file, path));
  const std::string id = std::to_string(::getpid()) + '\n';
  // The lock holds without the number, which is for people.
  if (::ftruncate(file, 0) == 0) [[maybe_unused]]
    const auto written = ::pwrite(file, id.data(), id.size(), 0);
  return file;
}

void RunDirectory::release(int lock, const fs::path& dir) {
  if (lock < 0) return;
  std::error_code ignored;
  if (is_still_at(lock, dir / "lock")) fs::remove(dir / "lock", ignored);
  ::close(lock);
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
  fs::rename(dir_, aside);  // with the lock in it, which is held until the new one is
  const int before = std::exchange(lock_, -1);
  try {
    fs::create_directory(dir_);
    lock_ = lock();
  } catch (...) {
    release(before, aside);
    throw;
  }
  release(before, aside);
  out << dir_.string() << " held a run already; it is now " << aside.string() << '\n';
}

void RunDirectory::begin(const std::vector<std::string>& data, std::ostream& out) {
  if (!is_still_at(lock_, dir_ / "lock"))
    fail("the run directory ", dir_, " was removed or moved while the data were read");
  is_run(dir_) ? move_aside(data, out) : refuse_foreign_files(dir_);
  keep();
}

}  // namespace minim
