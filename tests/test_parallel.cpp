// The thread pool: what core/parallel.h promises of chunks, whoever runs them.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "minim/core/allocator.h"
#include "minim/core/error.h"
#include "minim/core/parallel.h"
#include "minim/core/probe.h"

using namespace minim;

namespace {

struct Threads {
  explicit Threads(int n) { set_threads(n); }
  ~Threads() { set_threads(before); }
  int before = threads();
};

/// How often each of n chunks ran.
std::vector<int> counts(int64_t n) {
  std::vector<int> ran(size_t(n), 0);
  parallel_for(n, 1, [&](int64_t begin, int64_t) { ++ran[size_t(begin)]; });
  return ran;
}

}  // namespace

TEST_CASE("each chunk runs once, by one thread or many, in jobs that follow each other") {
  for (int n : {1, 2, 3, 5}) {
    Threads many(n);
    for (int job = 0; job < 2000; ++job) {
      const int64_t chunks = 1 + job % 37;
      REQUIRE(counts(chunks) == std::vector<int>(size_t(chunks), 1));
    }
  }
}

TEST_CASE("workers that sleep come to the next job") {
  Threads two(2);
  std::atomic<int> inside{0};
  for (int job = 0; job < 3; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // longer than they spin
    inside = 0;
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++inside;
      while (inside < 2) std::this_thread::yield();  // each chunk waits for the other's thread
    });
    CHECK(inside == 2);
  }
}

TEST_CASE("an exception in a chunk reaches the caller after the others have run") {
  Threads three(3);
  for (int job = 0; job < 200; ++job) {
    std::atomic<int> ran{0};
    CHECK_THROWS_AS(parallel_for(16, 1,
                                 [&](int64_t begin, int64_t) {
                                   ++ran;
                                   if (begin % 5 == job % 5) throw std::runtime_error("a chunk");
                                 }),
                    std::runtime_error);
    CHECK(ran == 16);
    CHECK(counts(8) == std::vector<int>(8, 1));  // and is not told twice
  }
}

TEST_CASE("a parallel loop within a chunk runs on its thread, and several callers take turns") {
  Threads three(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0}, elsewhere{0};
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      for (int job = 0; job < 300; ++job) {
        std::vector<int> ran(12, 0);
        parallel_for(3, 1, [&](int64_t outer, int64_t) {
          const auto me = std::this_thread::get_id();
          parallel_for(4, 1, [&](int64_t inner, int64_t) {
            ++ran[size_t(4 * outer + inner)];
            if (std::this_thread::get_id() != me) ++elsewhere;
          });
        });
        if (ran != std::vector<int>(12, 1)) ++wrong;
      }
    });
  for (auto& caller : callers) caller.join();
  CHECK(wrong == 0);
  CHECK(elsewhere == 0);
}

TEST_CASE("the caller's probe holds in every chunk and in no later job") {
  Threads two(2);
  Probe mine;
  std::atomic<int> other{0}, inside{0};
  for (int job = 0; job < 200; ++job) {
    Probe* const wanted = job % 2 ? &mine : nullptr;
    ProbeScope scope(wanted);
    inside = 0;
    parallel_for(2, 1, [&](int64_t, int64_t) {
      if (Probe::current() != wanted) ++other;
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
  }
  CHECK(other == 0);
}

TEST_CASE("shares are dealt once each, the own part first") {
  for (const int64_t n : {1, 5, 64})
    for (const int64_t parts : {1, 3, 16, 40})
      for (const bool half : {false, true}) {
        const int64_t dealt = std::min<int64_t>(parts, 16);
        detail::Shares shares;
        shares.deal(n, parts);
        std::vector<int> taken(static_cast<size_t>(n));
        const int64_t me = dealt - 1, own = n * me / dealt;
        int64_t first, count, most = 0;
        bool began = false;
        while (shares.take(me, half, first, count)) {
          if (!std::exchange(began, true)) CHECK(first == own);
          most = std::max(most, count);
          for (int64_t i = first; i < first + count; ++i) ++taken.at(size_t(i));
        }
        CHECK(std::ranges::count(taken, 1) == n);
        CHECK(most == (half ? (n - own + 1) / 2 : 1));
      }
}

#if !defined(__SANITIZE_ADDRESS__)  // its allocator's lock may be another thread's at the fork
namespace {

/// The exit status of `body` in a forked child; -1 where it is killed, by a fault or after 20 s.
int in_child(const std::function<int()>& body) {
#if defined(__SANITIZE_THREAD__)  // which does not follow the threads of a child
  return body();
#endif
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("several threads may be the first to need the pool") {
  threads();
  for (int i = 0; i < 40; ++i) {  // each child begins without one
    const int status = in_child([] {
      std::atomic<int> ready{0}, wrong{0};
      std::vector<std::thread> users;
      for (int u = 0; u < 8; ++u)
        users.emplace_back([&] {
          ++ready;
          while (ready < 8) std::this_thread::yield();
          if (counts(16) != std::vector<int>(16, 1)) ++wrong;
        });
      for (auto& user : users) user.join();
      return int(wrong);
    });
    REQUIRE(status == 0);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("the threads of a forked child count their memory, where its parent's lay or elsewhere") {
  Threads two(2);
  const auto take_on_each = [] {
    std::atomic<int> here{0};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      constexpr MemoryKind kind = MemoryKind::activations;
      memory::release(memory::allocate(64, kind), 64, kind);
      for (++here; here < 2;) std::this_thread::yield();
    });
    return memory::stats().total.current;
  };
  const size_t before = take_on_each();
  CHECK(in_child([&] { return take_on_each() == before ? 0 : 1; }) == 0);
}

TEST_CASE("a forked child computes on as many threads as its parent") {
  Threads three(3);
  CHECK(counts(16) == std::vector<int>(16, 1));
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) counts(16);
  });
  for (int i = 0; i < 20; ++i) {
    const int status = in_child([] {
      if (threads() != 3 || counts(16) != std::vector<int>(16, 1)) return 1;
      set_threads(2);
      return counts(16) == std::vector<int>(16, 1) ? 0 : 2;
    });
    CHECK(status == 0);
  }
  stop = true;
  busy.join();
  CHECK(counts(16) == std::vector<int>(16, 1));
}
#endif

TEST_CASE("the number of threads may be set while others compute") {
  const int status = in_child([] {  // so that a hang is a failure
    set_threads(2);
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> users;
    for (int u = 0; u < 3; ++u)
      users.emplace_back([&] {
        while (!stop)
          if (counts(16) != std::vector<int>(16, 1))
            ++wrong;
          else
            std::this_thread::sleep_for(
                std::chrono::microseconds(100));  // the lock is free at times
      });
    for (int i = 0; i < 20; ++i) set_threads(1 + i % 4);
    stop = true;
    for (auto& user : users) user.join();
    return int(wrong);
  });
  CHECK(status == 0);
}
#endif

TEST_CASE("the number of threads cannot be set within a parallel loop") {
  Threads two(2);
  std::atomic<int> refused{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    try {
      set_threads(3);
    } catch (const Error&) {
      ++refused;
    }
  });
  CHECK(refused == 4);
  CHECK(threads() == 2);
}
