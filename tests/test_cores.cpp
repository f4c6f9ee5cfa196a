// How many cores a process may use: the affinity mask and the quotas of control groups.
#include <doctest/doctest.h>
#include <sched.h>

#include <fstream>

#include "minim/core/cores.h"
#include "minim/tests/temp_dir.h"

using namespace minim;

namespace {

void put(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

}  // namespace

TEST_CASE("the affinity mask bounds the cores that are usable") {
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  CHECK(cores().allowed == CPU_COUNT(&before));
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(cores().allowed == 1);
  CHECK(cores().usable() == 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST_CASE("a control group's quota bounds the cores that are usable, and so do the groups above") {
  const test::TempDir dir;
  const auto proc = dir.path / "proc", mounts = dir.path / "mounts";
  const auto quota = [&] { return cpu_quota(proc, mounts); };
  CHECK_FALSE(quota());
  put(proc / "cgroup", "9:name=systemd:/\n2:cpuacct,cpu:/a/b\n0::/c/d\n");
  CHECK_FALSE(quota());
  put(mounts / "c/d/cpu.max", "max 100000\n");
  put(mounts / "cpuacct,cpu/a/b/cpu.cfs_quota_us", "-1\n");
  put(mounts / "cpuacct,cpu/a/b/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(quota());
  put(mounts / "c/cpu.max", "350000 100000\n");
  CHECK(quota() == 3.5);
  put(mounts / "cpuacct,cpu/a/cpu.cfs_quota_us", "125000\n");
  put(mounts / "cpuacct,cpu/a/cpu.cfs_period_us", "50000\n");
  CHECK(quota() == 2.5);
  put(mounts / "cpu.max", "50000 100000\n");
  CHECK(quota() == 0.5);
}

TEST_CASE("a quota is worth its whole cores, and at least one") {
  CHECK(Cores{.machine = 8, .allowed = 4}.usable() == 4);
  CHECK(Cores{.machine = 8, .allowed = 4, .quota = 2.9}.usable() == 2);
  CHECK(Cores{.machine = 8, .allowed = 4, .quota = 0.5}.usable() == 1);
  CHECK(Cores{.machine = 8, .allowed = 4, .quota = 6}.usable() == 4);
}
