// tests/full_memory.h -- what memory that runs out leaves behind.
#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "minim/core/tensor.h"

namespace minim::test {

enum class Ended { whole, refused, torn };

/// Calls `act` in a process of its own, which may have `bytes` more memory than it has: whole where
/// it came to its end, refused where it ended with an Error and `untouched()` is true then.
template <class Act, class Untouched>
Ended with_memory(size_t bytes, Act&& act, Untouched&& untouched) {
  const pid_t child = fork();
  if (child == 0) {
    memory::empty_cache();
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    const rlimit before = limit;
    limit.rlim_cur = (pages << 12) + bytes;
    setrlimit(RLIMIT_AS, &limit);
    Ended ended = Ended::torn;
    try {
      act();
      ended = Ended::whole;
    } catch (const Error&) {
      setrlimit(RLIMIT_AS, &before);
      if (untouched()) ended = Ended::refused;
    } catch (...) {
    }
    _exit(int(ended));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? Ended(WEXITSTATUS(status)) : Ended::torn;
}

/// Whether `act` is whole or refused with each of 1 to 64 MB more, and is both somewhere.
template <class Act, class Untouched>
bool whole_or_refused(Act&& act, Untouched&& untouched) {
  bool seen[3] = {};
  for (size_t mb = 1; mb <= 64; mb += mb < 24 ? 1 : 8)
    seen[int(with_memory(mb << 20, act, untouched))] = true;
  return seen[int(Ended::whole)] && seen[int(Ended::refused)] && !seen[int(Ended::torn)];
}

}  // namespace minim::test
