#include "minim/core/parallel.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "minim/core/denormals.h"
#include "minim/core/error.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

struct Job {
  int64_t end;  ///< of its chunks
  detail::ChunkFn fn;
  void* body;
  Probe* probe;
  FloatMode mode;
};

thread_local bool inside_chunk = false;

/// One word tells a job's number and how many of its chunks nobody has claimed; it and the job are
/// in one cache line, since each line that goes from one thread to another costs 50 to 400 ns. Who
/// claims a chunk may read the job: its caller waits until all claimed chunks are reported.
class Pool {
 public:
  Pool() = default;
  /// Delegates, so that the destructor joins the workers that there are when the next cannot be
  /// made.
  explicit Pool(int n) : Pool() {
    workers_.reserve(size_t(n));
    try {
      while (size() < n) workers_.emplace_back([this] { serve(); });
    } catch (const std::system_error& e) {
      fail("only ", size(), " of ", n, " threads could be made (", e.what(),
           "); ask for fewer, or allow the process more memory or threads");
    }
  }
  ~Pool() {
    stop_ = true;
    publish(0);
    for (auto& t : workers_) t.join();
  }
  int size() const { return int(workers_.size()) + 1; }

  /// @param chunks below 2^31: those before job.end
  void run(const Job& job, int64_t chunks) {
    std::lock_guard one_job_at_a_time(caller_mutex_);
    job_ = job;
    done_.store(0, std::memory_order_relaxed);
    publish(chunks);
    inside_chunk = true;
    work();
    inside_chunk = false;
    while (done_.load(std::memory_order_acquire) != chunks) __builtin_ia32_pause();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  static int64_t left(int64_t word) { return word >> 32; }
  static uint32_t number(int64_t word) { return uint32_t(word); }

  void publish(int64_t chunks) {
    word_.store(chunks << 32 | number(word_.load(std::memory_order_relaxed) + 1));
    if (sleepers_.load() == 0)
      return;  // who is about to sleep sees the word that was stored before
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  /// How many chunks were left, the claimed one with them; at most 0 where there was none.
  int64_t claim() {
    if (left(word_.load(std::memory_order_relaxed)) <= 0) return 0;
    return left(word_.fetch_sub(int64_t{1} << 32, std::memory_order_acquire));
  }
  void work() {
    int64_t at = claim(), ran = 0;
    if (at <= 0) return;
    ProbeScope probes(job_.probe);
    job_.mode.apply();
    for (; at > 0; at = claim(), ++ran) {
      try {
        job_.fn(job_.body, job_.end - at);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
    done_.fetch_add(ran, std::memory_order_release);
  }
  void serve() {
    inside_chunk = true;
    for (uint32_t seen = 0;;) {
      seen = wait_for_job(seen);
      if (stop_) return;
      work();
    }
  }
  uint32_t wait_for_job(uint32_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (uint32_t n = number(word_.load(std::memory_order_acquire)); n != seen) return n;
      __builtin_ia32_pause();
    }
    std::unique_lock lock(mutex_);
    ++sleepers_;
    wake_.wait(lock, [&] { return number(word_.load()) != seen; });
    --sleepers_;
    return number(word_.load());
  }

  static constexpr int kSpins = 2000;  // about 50 us: the gap between two kernels of a step
  alignas(64) std::atomic<int64_t> word_{0};
  Job job_{};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::exception_ptr error_;
  std::mutex mutex_, caller_mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

int default_threads() { return int(std::max(1u, std::thread::hardware_concurrency())); }

std::unique_ptr<Pool>& pool() {
  static auto* p =
      new std::unique_ptr<Pool>;  // never joined at exit: workers may outlive static destructors
  return *p;
}

}  // namespace

void set_threads(int n) {
  if (n < 0) fail("the number of threads must be 0 (one per core) or more, not ", n);
  int wanted = n == 0 ? default_threads() : n;
  if (pool() && pool()->size() == wanted) return;
  pool().reset();
  pool() = std::make_unique<Pool>(wanted);
}

int threads() {
  if (!pool()) set_threads(0);
  return pool()->size();
}

void detail::run_chunks(int64_t chunks, ChunkFn fn, void* body) {
  if (inside_chunk || chunks == 1 || threads() == 1) {
    for (int64_t c = 0; c < chunks; ++c) fn(body, c);
    return;
  }
  constexpr int64_t kMost = INT32_MAX;
  Job job{0, fn, body, Probe::current(), FloatMode::current()};
  while (job.end < chunks) {
    const int64_t n = std::min(kMost, chunks - job.end);
    job.end += n;
    pool()->run(job, n);
  }
}

}  // namespace minim
