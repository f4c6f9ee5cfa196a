#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <random>

#include "minim/core/error.h"
#include "minim/models/atomic_dir.h"
#include "minim/models/manifest.h"
#include "minim/models/read_file.h"
#include "minim/models/sync_file.h"

using namespace minim;
using namespace minim::models;
namespace fs = std::filesystem;

namespace {

/// Memory if there is some: a commit then takes no time in fsync, so that kills hit its other
/// steps.
fs::path fast_disk() {
  return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

struct TempDir {
  fs::path path = fast_disk() / ("minim-atomic-" + std::to_string(::getpid()));
  TempDir() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~TempDir() { fs::remove_all(path); }
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// Two files that both hold `number`, so that a mixture of two checkpoints shows.
void save(const fs::path& target, int number, Swap swap = Swap::exchange) {
  AtomicDirectory dir(target, swap);
  write(dir.staging() / "model", std::to_string(number));
  write(dir.staging() / "sub" / "optim", std::string(20000, ' ') + std::to_string(number));
  dir.commit();
}

int number_in(const fs::path& dir) {
  const int number = std::stoi(read_file(dir / "model", "test"));
  CHECK(number == std::stoi(read_file(dir / "sub" / "optim", "test")));
  return number;
}

/// The number in the newest complete checkpoint; -1 if there is none.
int newest(const fs::path& target) {
  const auto dir = newest_complete(target);
  return dir ? number_in(*dir) : -1;
}

size_t entries(const fs::path& dir) {
  return size_t(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

using Saver = std::function<void(int number)>;

/// Saves from `number` on without end and reports each number once it is committed.
[[noreturn]] void save_until_killed(const Saver& save, int number, int report) {
  for (;; ++number) {
    save(number);
    if (::write(report, &number, sizeof number) != ssize_t(sizeof number)) ::_exit(1);
  }
}

/// Lets a child save for a random while, kills it, and gives the last number it reported as
/// committed, or `before`.
int kill_a_saver(const Saver& save, int before, std::mt19937& random) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      save_until_killed(save, before + 1, ends[1]);
    } catch (...) {
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  ::usleep(useconds_t(random() % 30'000));
  ::kill(child, SIGKILL);
  int status = 0, last = before;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  while (::read(ends[0], &last, sizeof last) == ssize_t(sizeof last)) {
  }
  ::close(ends[0]);
  return last;
}

}  // namespace

TEST_CASE(
    "atomic dir: the target is the last commit, .prev the one before, and nothing else stays") {
  for (const Swap swap : {Swap::exchange, Swap::two_renames}) {
    const TempDir temp;
    const fs::path target = temp.path / "deep" / "last";
    CHECK(newest_complete(target) == std::nullopt);
    for (int number = 0; number < 4; ++number) {
      save(target, number, swap);
      CHECK(newest(target) == number);
      if (number > 0) CHECK(number_in(target.string() + ".prev") == number - 1);
      CHECK(entries(target.parent_path()) == (number > 0 ? 2 : 1));
    }
    CHECK_NOTHROW(verify_manifest(target.string() + ".prev"));
  }
}

TEST_CASE("atomic dir: without a commit nothing changes and the staging directory goes") {
  const TempDir temp;
  const fs::path target = temp.path / "last";
  save(target, 1);
  {
    AtomicDirectory dir(target);
    write(dir.staging() / "model", "2");
    CHECK(fs::exists(dir.staging()));
  }
  CHECK(newest(target) == 1);
  CHECK(entries(temp.path) == 1);
}

TEST_CASE("atomic dir: what a killed run left is removed, and a trailing slash is no other name") {
  const TempDir temp;
  write(temp.path / "last.tmp" / "stale", "x");
  AtomicDirectory dir(temp.path / "last" / "");
  CHECK(dir.staging() == temp.path / "last.tmp");
  CHECK(entries(dir.staging()) == 0);
  dir.commit();
  CHECK(newest_complete(temp.path / "last" / "") == temp.path / "last");
  CHECK_THROWS_WITH_AS(dir.commit(), doctest::Contains("committed already"), Error);
}

TEST_CASE("atomic dir: what is not a checkpoint is never replaced") {
  const TempDir temp;
  write(temp.path / "thesis" / "chapter", "x");
  write(temp.path / "file", "x");
  write(temp.path / "a.prev" / "chapter", "x");
  for (const char* name : {"thesis", "file", "a"})
    CHECK_THROWS_WITH_AS(AtomicDirectory(temp.path / name), doctest::Contains("not a checkpoint"),
                         Error);
  CHECK(fs::exists(temp.path / "thesis" / "chapter"));
}

TEST_CASE("atomic dir: a damaged target falls back to .prev, and a save then keeps the good one") {
  for (const Swap swap : {Swap::exchange, Swap::two_renames}) {
    const TempDir temp;
    const fs::path target = temp.path / "last";
    save(target, 1);
    save(target, 2);
    write(target / "model", "3");
    CHECK(newest(target) == 1);
    std::string why;
    CHECK(newest_complete(target, &why) == target.string() + ".prev");
    CHECK(why.starts_with("checkpoint"));
    CHECK(why.find("'model' is damaged") != std::string::npos);
    CHECK(why.find('\n') == std::string::npos);
    save(target, 4, swap);
    newest_complete(target, &why);
    CHECK(why == "");
    CHECK(newest(target) == 4);
    write(target / "model", "5");
    if (swap == Swap::two_renames) CHECK(newest(target) == 1);
  }
}

TEST_CASE("atomic dir: when nothing complete is left, the error gives the reason for each") {
  const TempDir temp;
  const fs::path target = temp.path / "last";
  save(target, 1);
  save(target, 2);
  write(target / "model", "x");
  fs::remove(target.string() + ".prev/model");
  CHECK_THROWS_WITH_AS(newest_complete(target), doctest::Contains("'model' is damaged"), Error);
  CHECK_THROWS_WITH_AS(newest_complete(target), doctest::Contains("'model' is missing"), Error);
}

TEST_CASE("atomic dir: a missing target between two renames is found as .prev") {
  const TempDir temp;
  const fs::path target = temp.path / "last";
  save(target, 1);
  fs::rename(target, target.string() + ".prev");
  CHECK(newest(target) == 1);
  save(target, 2);
  CHECK(newest(target) == 2);
  CHECK(number_in(target.string() + ".prev") == 1);
}

TEST_CASE("atomic dir: a saver killed at any moment leaves a complete checkpoint, the newest one") {
  std::mt19937 random(1337);
  int commits = 0;
  for (const Swap swap : {Swap::exchange, Swap::two_renames}) {
    const TempDir temp;
    const fs::path target = temp.path / "last";
    save(target, 0);
    for (int kill = 0, number = 0; kill < 15; ++kill) {
      const int committed = kill_a_saver([&](int n) { save(target, n, swap); }, number, random);
      const int found = newest(target);
      CHECK(found >= committed);
      CHECK(found <= committed + 1);
      commits += found - number;
      number = found;
    }
  }
  CHECK(commits > 0);
}

TEST_CASE("manifest: every defect has its own message") {
  const TempDir temp;
  const fs::path dir = temp.path / "last", manifest = dir / kManifestName;
  save(dir, 12);
  const std::string good = read_file(manifest, "test");
  CHECK_NOTHROW(verify_manifest(dir));
  const auto complaint = [&] {
    try {
      verify_manifest(dir);
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find(dir.string()) != std::string::npos);
      return std::string(e.what());
    }
    return std::string();
  };
  const auto check = [&](const char* part) {
    INFO(complaint());
    CHECK(complaint().find(part) != std::string::npos);
  };
  const auto edit = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    write(manifest, text.replace(text.find(from), from.size(), to));
  };

  write(dir / "model", "1");
  check("'model' has 1 bytes, not the recorded 2");
  write(dir / "model", "13");
  check("'model' is damaged: its hash is");
  fs::remove(dir / "model");
  check("'model' is missing");
  write(dir / "model", "12");
  write(dir / "notes", "a file that is not listed does no harm");
  CHECK(complaint() == "");

  edit("minim-checkpoint", "other");
  check("not of the format 'minim-checkpoint'");
  edit("\"version\":1", "\"version\":2");
  check("version 2; this program reads version 1");
  edit("\"version\"", "\"revision\"");
  check("MANIFEST is damaged");
  edit("\"size\"", "\"length\"");
  check("MANIFEST is damaged");
  write(manifest, good.substr(0, good.size() / 2));
  check("MANIFEST is damaged");
  write(manifest, "[]");
  check("not of the format");
  write(manifest, R"({"format": 3})");
  check("MANIFEST is damaged");
  fs::remove(manifest);
  check("has no MANIFEST");
  fs::remove_all(dir);
  check("not a directory");
}

TEST_CASE("manifest: hashes are FNV-1a") {
  const TempDir temp;
  write(temp.path / "a", "foobar");
  write_manifest(temp.path);
  CHECK(read_file(temp.path / kManifestName, "test").find("85944171f73967e8") != std::string::npos);
}

TEST_CASE("manifest: a link is refused, since it may point outside") {
  const TempDir temp;
  fs::create_symlink("/etc/hostname", temp.path / "link");
  CHECK_THROWS_WITH_AS(write_manifest(temp.path), doctest::Contains("neither a file nor"), Error);
}

TEST_CASE("atomic file: it is replaced whole, or stays as it was") {
  const TempDir temp;
  const fs::path path = temp.path / "summary.json";
  write_file_atomically(path, "one");
  write_file_atomically(path, "two");
  CHECK(read_file(path, "test") == "two");
  fs::create_directory(path.string() + ".tmp");
  CHECK_THROWS_WITH_AS(write_file_atomically(path, "three"), doctest::Contains("cannot be written"),
                       Error);
  CHECK(read_file(path, "test") == "two");
  CHECK_THROWS_WITH_AS(write_file_atomically(temp.path, "x"), doctest::Contains("cannot be"),
                       Error);
  CHECK_FALSE(fs::exists(temp.path.string() + ".tmp"));
  CHECK_THROWS_AS(write_file_atomically(temp.path / "no" / "file", "x"), Error);
  const fs::path link = temp.path / "link";  // as /dev/stdout is, which a rename would replace
  fs::create_symlink(path, link);
  CHECK_THROWS_WITH_AS(write_file_atomically(link, "x"), doctest::Contains("no regular file"),
                       Error);
  CHECK(fs::is_symlink(link));
}

TEST_CASE("atomic file: a writer killed at any moment leaves one whole text, the newest one") {
  const TempDir temp;
  const fs::path path = temp.path / "summary.json";
  std::mt19937 random(1337);
  const auto text = [](int number) { return std::to_string(number) + std::string(1 << 20, '.'); };
  const auto save = [&](int number) { write_file_atomically(path, text(number)); };
  save(0);
  for (int kill = 0, number = 0; kill < 15; ++kill) {
    const int committed = kill_a_saver(save, number, random);
    const std::string found = read_file(path, "test");
    number = std::stoi(found);
    CHECK((found == text(number)));
    CHECK(number >= committed);
    CHECK(number <= committed + 1);
  }
}
