// tests/full_memory.h -- what memory that runs out leaves behind.
#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "minim/core/parallel.h"
#include "minim/core/tensor.h"

namespace minim::test {

enum class Ended { whole, refused, torn };

/// Calls `act` in a process of its own, which may have `bytes` more memory than it has: whole where
/// it came to its end, refused where it ended with an Error and `untouched()` is true then.
template <class Act, class Untouched>
Ended with_memory(size_t bytes, Act&& act, Untouched&& untouched) {
  const pid_t child = fork();
  if (child == 0) {
    // Threads of its own, each with what it keeps: the C library ends a process that has no memory
    // for that, and doctest, which sees the signal, would wait for threads that are not there.
    std::signal(SIGABRT, SIG_DFL);
    std::atomic<int> here{0};
    parallel_for(threads(), 1, [&](int64_t, int64_t) {
      for (const size_t bytes : {64, 4096, 1 << 20}) {
        constexpr MemoryKind kind = MemoryKind::activations;
        memory::release(memory::allocate(bytes, kind), bytes, kind);
        memory::give_scratch(memory::take_scratch(bytes), bytes);
      }
      for (++here; here < threads();) std::this_thread::yield();
    });
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
