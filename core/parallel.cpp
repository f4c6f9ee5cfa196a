#include "minim/core/parallel.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "minim/core/cores.h"
#include "minim/core/denormals.h"
#include "minim/core/error.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

struct Job {
  int64_t first;  ///< of its chunks
  detail::ChunkFn fn;
  void* body;
  Probe* probe;
  FloatMode mode;
};

thread_local bool inside_chunk = false;

/// The job and its number are in one cache line, since each line that goes from one thread to
/// another costs 50 to 400 ns. Who has taken a chunk may read the job: its caller waits until all
/// that were taken are reported. The caller is thread 0.
class Pool {
 public:
  explicit Pool(int n) { start(n - 1); }
  int size() const { return size_.load(std::memory_order_relaxed); }

  /// After the job that runs, before the next. @throws Error when so many cannot be made; there are
  /// then as many as before.
  void resize(int n) {
    std::lock_guard between_jobs(caller_mutex_);
    const int before = size();
    if (n == before) return;
    stop();
    try {
      start(n - 1);
    } catch (const Error&) {
      start(before - 1);
      throw;
    }
  }

  /// @param chunks below 2^31, from job.first on
  void run(const Job& job, int64_t chunks) {
    std::lock_guard one_job_at_a_time(caller_mutex_);
    job_ = job;
    done_.store(0, std::memory_order_relaxed);
    chunks_.deal(chunks, std::min<int64_t>(size(), chunks));
    wake();
    inside_chunk = true;
    work(0);
    inside_chunk = false;
    while (done_.load(std::memory_order_acquire) != chunks) __builtin_ia32_pause();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void start(int n) {
    workers_.reserve(size_t(n));
    try {
      while (int(workers_.size()) < n)
        workers_.emplace_back([this, me = int64_t(workers_.size()) + 1] { serve(me); });
    } catch (const std::system_error& e) {
      const size_t made = workers_.size() + 1;
      stop();
      fail("only ", made, " of ", n + 1, " threads could be made (", e.what(),
           "); ask for fewer, or allow the process more memory or threads");
    }
    size_.store(n + 1, std::memory_order_relaxed);
  }
  void stop() {
    stop_ = true;
    wake();
    for (auto& t : workers_) t.join();
    workers_.clear();
    stop_ = false;
    size_.store(1, std::memory_order_relaxed);
  }
  void wake() {
    number_.fetch_add(1);
    if (sleepers_.load() == 0) return;  // who is about to sleep sees the number
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  void work(int64_t me) {
    int64_t chunk, count, ran = 0;
    if (!chunks_.take(me, false, chunk, count)) return;
    ProbeScope probes(job_.probe);
    job_.mode.apply();
    do {
      try {
        job_.fn(job_.body, job_.first + chunk);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
      ++ran;
    } while (chunks_.take(me, false, chunk, count));
    done_.fetch_add(ran, std::memory_order_release);
  }
  void serve(int64_t me) {
    inside_chunk = true;
    for (uint32_t seen = 0;;) {
      seen = wait_for_job(seen);
      if (stop_) return;
      work(me);
    }
  }
  uint32_t wait_for_job(uint32_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (uint32_t n = number_.load(std::memory_order_acquire); n != seen) return n;
      __builtin_ia32_pause();
    }
    std::unique_lock lock(mutex_);
    ++sleepers_;
    wake_.wait(lock, [&] { return number_.load() != seen; });
    --sleepers_;
    return number_.load();
  }

  static constexpr int kSpins = 2000;  // about 50 us: the gap between two kernels of a step
  alignas(64) std::atomic<uint32_t> number_{0};
  Job job_{};
  detail::Shares chunks_;
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::exception_ptr error_;
  std::mutex mutex_, caller_mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
  std::atomic<int> size_{1};
};

/// Made by the first who needs it, and never joined at exit: workers may outlive static
/// destructors.
constinit std::atomic<Pool*> the_pool{nullptr};
constinit std::atomic<int> wanted{0};  ///< threads; 0: not said
constinit std::mutex making;           ///< of whoever makes or resizes it

/// Only the thread that forked is in the child, so the child makes a pool of its own when it needs
/// one. What the parent's was doing does not matter to it.
void forget_pool_in_child() {
  if (inside_chunk) return;  // it goes on in that chunk, in which nothing is parallel
  the_pool.store(nullptr);
  new (&making) std::mutex;
}

Pool& make_pool(int n) {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool_in_child);
  static_cast<void>(registered);
  auto* p = new Pool(n);
  the_pool.store(p, std::memory_order_release);
  return *p;
}

[[gnu::noinline]] Pool& first_pool() {
  std::lock_guard one_makes_it(making);
  if (Pool* p = the_pool.load(std::memory_order_acquire)) return *p;
  const int n = wanted.load();
  return make_pool(n > 0 ? n : cores().usable());
}

Pool& pool() {
  Pool* p = the_pool.load(std::memory_order_acquire);
  return p ? *p : first_pool();
}

}  // namespace

void set_threads(int n) {
  if (n < 0) fail("the number of threads must be 0 (one per core) or more, not ", n);
  if (inside_chunk)
    fail("set_threads(", n, ") within a parallel loop, which the threads are at: call it outside");
  const int all = n == 0 ? cores().usable() : n;
  std::lock_guard one_makes_it(making);
  if (Pool* p = the_pool.load(std::memory_order_acquire))
    p->resize(all);
  else
    make_pool(all);
  wanted = all;
}

int threads() { return pool().size(); }

void detail::Shares::deal(int64_t n, int64_t parts) {
  const int64_t count = std::min<int64_t>(parts, int64_t(parts_.size()));
  count_.store(count, std::memory_order_relaxed);
  for (int64_t p = 0; p < count; ++p)
    parts_[size_t(p)].left.store(uint64_t(n * (p + 1) / count) << 32 | uint64_t(n * p / count),
                                 std::memory_order_release);
}

bool detail::Shares::take(int64_t me, bool half, int64_t& first, int64_t& count) {
  const int64_t parts = count_.load(std::memory_order_relaxed);
  for (int64_t k = 0; k < parts; ++k) {
    std::atomic<uint64_t>& left = parts_[size_t((me + k) % parts)].left;
    uint64_t was = left.load(std::memory_order_acquire);
    do {
      first = int64_t(uint32_t(was)), count = int64_t(was >> 32) - first;
      if (count > 0) count = half ? (count + 1) / 2 : 1;
    } while (count > 0 &&
             !left.compare_exchange_weak(was, was + uint64_t(count), std::memory_order_acquire));
    if (count > 0) return true;
  }
  return false;
}

void detail::run_chunks(int64_t chunks, ChunkFn fn, void* body) {
  if (inside_chunk || chunks == 1 || threads() == 1) {
    for (int64_t c = 0; c < chunks; ++c) fn(body, c);
    return;
  }
  constexpr int64_t kMost = INT32_MAX;
  for (int64_t first = 0; first < chunks; first += kMost)
    pool().run({first, fn, body, Probe::current(), FloatMode::current()},
               std::min(kMost, chunks - first));
}

}  // namespace minim
