#include "minim/core/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace minim {
namespace {

namespace fs = std::filesystem;

/// Cores in the affinity mask; 0 where the system does not tell. A mask may be larger than
/// cpu_set_t: then the system says EINVAL, and is asked again.
int in_affinity() {
  for (size_t n = 1; n <= 64; n *= 2) {
    std::vector<cpu_set_t> mask(n);
    if (sched_getaffinity(0, n * sizeof(cpu_set_t), mask.data()) == 0)
      return CPU_COUNT_S(n * sizeof(cpu_set_t), mask.data());
  }
  return 0;
}

/// "max 100000" or "150000 100000": microseconds in each period.
std::optional<double> quota_v2(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period && quota > 0 && period > 0)
    return quota / period;
  return std::nullopt;
}

std::optional<double> quota_v1(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::ifstream(group / "cpu.cfs_quota_us") >> quota && quota > 0 &&  // -1: none
      std::ifstream(group / "cpu.cfs_period_us") >> period && period > 0)
    return quota / period;
  return std::nullopt;
}

bool has_word(const std::string& list, std::string_view word) {
  std::stringstream words(list);
  for (std::string one; std::getline(words, one, ',');)
    if (one == word) return true;
  return false;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& proc_self, const fs::path& mounts) {
  std::optional<double> least;
  const auto look = [&](const fs::path& mount, const fs::path& group, auto quota_of) {
    for (fs::path at = group.relative_path();; at = at.parent_path()) {
      if (const auto found = quota_of(at.empty() ? mount : mount / at))
        least = std::min(least.value_or(*found), *found);
      if (at.empty()) return;
    }
  };
  std::ifstream groups(proc_self / "cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      look(mounts, group, quota_v2);
      look(mounts / "unified", group, quota_v2);
    } else if (has_word(controllers, "cpu")) {
      look(mounts / controllers, group, quota_v1);
      look(mounts / "cpu", group, quota_v1);
    }
  }
  return least;
}

int Cores::usable() const {
  const int most = quota ? std::max(1, int(std::min(*quota, 1e6))) : allowed;
  return std::min(allowed, most);
}

Cores cores() {
  Cores c{.machine = int(std::max(1u, std::thread::hardware_concurrency())), .quota = cpu_quota()};
  const int found = in_affinity();
  c.allowed = found > 0 ? found : c.machine;
  return c;
}

}  // namespace minim
