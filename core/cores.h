// core/cores.h -- how many cores this process may use, which can be fewer than the machine has.
#pragma once
#include <filesystem>
#include <optional>

namespace minim {

struct Cores {
  int machine = 1;                   ///< that are online
  int allowed = 1;                   ///< by the affinity mask (taskset, a container's cpuset)
  std::optional<double> quota = {};  ///< of a control group: CPU time per time
  /// What threads are worth: a whole core each.
  int usable() const;
};

Cores cores();

/// The least quota on the way from this process's control groups to the root, of version 1 or 2;
/// nullopt where there is none. Both folders are parameters for tests.
std::optional<double> cpu_quota(const std::filesystem::path& proc_self = "/proc/self",
                                const std::filesystem::path& mounts = "/sys/fs/cgroup");

}  // namespace minim
