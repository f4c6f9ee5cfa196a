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
  int64_t chunks;
  detail::ChunkFn fn;
  void* body;
  Probe* probe;
  FloatMode mode;
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;

  void work() {
    ProbeScope probes(probe);
    mode.apply();
    for (int64_t c; (c = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      try {
        fn(body, c);
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }
};

thread_local bool inside_chunk = false;

/// Workers wait for a new job number; the caller works too and then waits for the workers that
/// entered the job.
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
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      number_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& t : workers_) t.join();
  }
  int size() const { return int(workers_.size()) + 1; }

  void run(Job& job) {
    std::lock_guard one_job_at_a_time(caller_mutex_);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      number_.fetch_add(1);
    }
    wake_.notify_all();
    inside_chunk = true;
    job.work();
    inside_chunk = false;
    {
      std::lock_guard lock(mutex_);
      job_ = nullptr;  // who has not come by now need not: every chunk is taken
    }
    while (busy_.load(std::memory_order_acquire) != 0) __builtin_ia32_pause();
  }

 private:
  void serve() {
    inside_chunk = true;
    for (uint64_t seen = 0;;) {
      wait_for_job(seen);
      Job* job;
      {
        std::lock_guard lock(mutex_);
        seen = number_.load();
        if (stop_) return;
        job = job_;
        if (job) busy_.fetch_add(1, std::memory_order_relaxed);
      }
      if (!job) continue;
      job->work();
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }
  void wait_for_job(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (number_.load(std::memory_order_acquire) != seen) return;
      __builtin_ia32_pause();
    }
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return number_.load() != seen; });
  }

  static constexpr int kSpins = 2000;  // about 50 us: the gap between two kernels of a step
  std::vector<std::thread> workers_;
  std::mutex mutex_, caller_mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> number_{0};
  std::atomic<int> busy_{0};
  Job* job_ = nullptr;
  bool stop_ = false;
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
  Job job{chunks, fn, body, Probe::current(), FloatMode::current(), {}, {}, {}};
  pool()->run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace minim
