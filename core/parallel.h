// core/parallel.h -- a small thread pool. Work whose order of sums follows the cut is cut into
// chunks by its size alone, never by the number of threads, so no result can depend on it.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

namespace minim {

/// How many threads run kernels (the caller's included). @param n 0 means one per core that this
/// process may use (core/cores.h). May be called while other threads compute: their loops end
/// before. The threads are made when they are first needed, by any thread, and anew in a forked
/// child. @throws Error within a parallel loop, and when so many cannot be made.
void set_threads(int n);
int threads();

namespace detail {

/// 0 .. n-1, dealt in equal parts. Who takes comes to its own part first, each time from its front:
/// so a thread meets the same rows in one kernel after the other, and they are still in its cache.
class Shares {
 public:
  /// @param n below 2^31
  void deal(int64_t n, int64_t parts);
  /// Some that nobody has taken, of part `me` or, when that is empty, of the next that is not:
  /// one, or half of what is left of the part. False if there are none.
  bool take(int64_t me, bool half, int64_t& first, int64_t& count);

 private:
  struct alignas(64) Part {
    std::atomic<uint64_t> left;  ///< the first, and in the upper half the end
  };
  std::array<Part, 16> parts_;
  std::atomic<int64_t> count_{0};
};

using ChunkFn = void (*)(void* body, int64_t chunk);
/// Runs fn(body, 0) .. fn(body, chunks - 1), each once, in any order (Shares), and returns when all
/// are done. The first exception is rethrown. A call from within a chunk runs on its own thread.
/// Thread-local probes of the caller hold in every chunk, and so do its rounding and flushing of
/// denormals (core/denormals.h).
void run_chunks(int64_t chunks, ChunkFn fn, void* body);
}  // namespace detail

/// Calls f(begin, end) over pieces of [0, n) of `grain` items each (the last may be shorter).
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return f(int64_t{0}, n);
  struct Body {
    F& f;
    int64_t n, grain;
  } body{f, n, grain};
  detail::run_chunks((n + grain - 1) / grain,
                     [](void* p, int64_t chunk) {
                       Body& b = *static_cast<Body*>(p);
                       int64_t begin = chunk * b.grain;
                       b.f(begin, std::min(b.n, begin + b.grain));
                     },
                     &body);
}

}  // namespace minim
