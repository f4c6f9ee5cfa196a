#include "minim/core/allocator.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <utility>

#include "minim/core/block_cache.h"
#include "minim/core/error.h"
#include "minim/core/pool.h"

namespace minim {

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, kMemoryKinds> names{
      "activations", "weights", "masters", "moments", "gradients", "casts", "scratch", "data"};
  return names[size_t(kind)];
}

namespace {

/// What is in use and what is idle may be together the most bytes that were ever in use, an eighth
/// of that, and this.
constexpr size_t kIdleFloor = size_t{1} << 22;

using ByKind = std::array<int64_t, kMemoryKinds>;
constexpr size_t kScratch = size_t(MemoryKind::scratch);

/// Small blocks are the pool's, without the lock: each thread counts what it has taken more than it
/// gave back (or less: another thread's blocks), and the sum is made when somebody asks, a larger
/// block moves, or a thread has moved much.
struct Small {
  std::array<std::atomic<int64_t>, kMemoryKinds> bytes;  // its own thread alone writes
  std::atomic<int64_t> most_scratch;                     // since the last sum
  int64_t room;  // bytes that may move until the sum is made; at first none
  bool ended;    // its thread's entry is gone: what moves now is counted at once
  Small* next;   // of another thread: a list that grows without memory, as blocks are given back
};
constexpr int64_t kMostUnseen = 1 << 14;
thread_local constinit Small small{};

struct Cache {
  std::mutex mutex;
  memory::BlockCache blocks;
  ByKind large{}, peak{};  // `large` has also what ended threads left
  int64_t total_peak = 0;
  int64_t most = 0;  // bytes in use, ever
  Small* threads = nullptr;

  /// The bytes there are, and with it the peaks.
  ByKind count() {
    ByKind now = large;
    for (size_t k = 0; k < kMemoryKinds; ++k)
      for (const Small* s = threads; s; s = s->next)
        now[k] += s->bytes[k].load(std::memory_order_relaxed);
    ByKind most = now;  // each thread's buffers came and went in between
    for (Small* s = threads; s; s = s->next) {
      const int64_t here = s->bytes[kScratch].load(std::memory_order_relaxed);
      if (s->most_scratch.load(std::memory_order_relaxed) != here)
        most[kScratch] += std::max<int64_t>(0, s->most_scratch.exchange(here) - here);
    }
    for (size_t k = 0; k < kMemoryKinds; ++k) peak[k] = std::max(peak[k], most[k]);
    total_peak = std::max(total_peak, total(most));
    return now;
  }
  /// Of a larger block. The buffers that came and went before it were not beside it.
  void move(int64_t bytes, MemoryKind kind) {
    ByKind now = count();
    large[size_t(kind)] += bytes;
    peak[size_t(kind)] = std::max(peak[size_t(kind)], now[size_t(kind)] += bytes);
    total_peak = std::max(total_peak, total(now));
    most = std::max(most, total_peak);
  }
  /// In a child of fork(), whose new threads may lie where those that it has not lay: what they
  /// had taken stays in use.
  void forget_threads_but(Small& mine) {
    Small* left = nullptr;
    for (const Small* s = threads; s; s = s->next)
      for (size_t k = 0; k < kMemoryKinds; ++k)
        s == &mine ? void(left = &mine) : void(large[k] += s->bytes[k].load());
    threads = left;
    mine.next = nullptr;
  }
  void give(void* p, size_t size) noexcept {
    blocks.give(p, size);
    const int64_t may_be = most + most / 8 + int64_t(kIdleFloor) - total(large);
    blocks.trim(size_t(std::max<int64_t>(0, may_be)));
  }
  static int64_t total(const ByKind& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  }
};

Cache& cache() {
  static Cache* c = [] {
    // A child of fork() has the thread that called it alone: no other may hold the lock then.
    ::pthread_atfork([] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); },
                     [] { cache().forget_threads_but(small), cache().mutex.unlock(); });
    alignas(Cache) static std::byte room[sizeof(Cache)];
    return new (room) Cache;  // outlives every static tensor
  }();
  return *c;
}

struct ThreadEntry {
  ThreadEntry() {
    std::lock_guard lock(cache().mutex);
    small.next = std::exchange(cache().threads, &small);
  }
  ~ThreadEntry();
};

/// On its own thread alone.
void add(std::atomic<int64_t>& to, int64_t bytes) {
  to.store(to.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

/// Sees to it that this thread's bytes are counted.
void know_this_thread() {
  if (!small.ended) static thread_local ThreadEntry entry;
}

void count_small(int64_t bytes, MemoryKind kind) {
  std::atomic<int64_t>& mine = small.bytes[size_t(kind)];
  add(mine, bytes);
  if ((small.room -= std::abs(bytes)) >= 0) return;
  if (small.ended) {
    std::lock_guard lock(cache().mutex);
    cache().large[size_t(kind)] += mine.exchange(0);
    return;
  }
  know_this_thread();
  std::lock_guard lock(cache().mutex);
  cache().count();
  small.room = kMostUnseen;
}

thread_local MemoryKind current_kind = MemoryKind::activations;

/// The buffers that a thread keeps for its kernels. In use they count as scratch.
class Kept {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMost = 0;  // it watches each block
#else
  static constexpr size_t kMost = size_t{1} << 18;  // a larger one costs more than the lock
#endif

  /// The smallest that fits and is not much too large, else a new one; null if all are in use.
  void* take(size_t size) {
    if (small.ended) return nullptr;
    Block* best = nullptr;
    for (Block& b : blocks_)
      if (!b.used && b.size >= size && b.size / 4 <= size && (!best || b.size < best->size))
        best = &b;
    if (!best && !(best = fresh(size))) return nullptr;
    best->used = true;
    add(small.bytes[kScratch], int64_t(size));
    const int64_t now = small.bytes[kScratch].load(std::memory_order_relaxed);
    if (now > small.most_scratch.load(std::memory_order_relaxed)) small.most_scratch.store(now);
    return best->p;
  }
  /// Whether it is one of these.
  bool give(void* p, size_t size) noexcept {
    for (Block& b : blocks_) {
      if (!b.used || b.p != p) continue;
      b.used = false;
      if (small.ended)
        drop(b), count_small(-int64_t(size), MemoryKind::scratch);
      else
        add(small.bytes[kScratch], -int64_t(size));
      return true;
    }
    return false;
  }
  void clear() noexcept {
    for (Block& b : blocks_)
      if (!b.used) drop(b);
  }
  /// Bytes that nobody uses.
  size_t idle() const {
    size_t bytes = 0;
    for (const Block& b : blocks_) bytes += b.used ? 0 : b.size;
    return bytes;
  }

 private:
  struct Block {
    void* p;
    size_t size;
    bool used;
  };
  /// In place of the smallest that is not in use; null if there is none or no memory.
  Block* fresh(size_t size) {
    Block& b = *std::ranges::min_element(blocks_, {},
                                         [](const Block& b) { return b.used ? SIZE_MAX : b.size; });
    if (b.used) return nullptr;
    know_this_thread();
    drop(b);
    std::lock_guard lock(cache().mutex);
    b.p = cache().blocks.take(size);
    b.size = b.p ? size : 0;
    return b.p ? &b : nullptr;
  }
  static void drop(Block& b) noexcept {
    if (!b.p) return;
    std::lock_guard lock(cache().mutex);
    cache().give(std::exchange(b.p, nullptr), std::exchange(b.size, 0));
  }
  std::array<Block, 8> blocks_{};
};
thread_local constinit Kept kept;  // without a destructor: other thread-locals' may still use it

ThreadEntry::~ThreadEntry() {
  kept.clear();
  std::lock_guard lock(cache().mutex);
  cache().count();
  for (size_t k = 0; k < kMemoryKinds; ++k) cache().large[k] += small.bytes[k].exchange(0);
  Small** at = &cache().threads;
  while (*at != &small) at = &(*at)->next;
  *at = small.next;
  small.room = 0;
  small.ended = true;
}

}  // namespace

namespace memory {

void* allocate(size_t bytes, MemoryKind kind) {
  const size_t size = memory::size_class(bytes);
  if (size <= pool::kMost) {
    void* block = pool::take(size);
    if (!block) pool::fail_full(size, name_of(kind));
    count_small(int64_t(size), kind);
    return block;
  }
  Cache& c = cache();
  std::unique_lock lock(c.mutex);
  void* p = c.blocks.take(size);
  if (!p) {  // there may be enough in idle blocks of other sizes
    lock.unlock();
    empty_cache();
    lock.lock();
    p = c.blocks.take(size);
  }
  if (!p) lock.unlock(), pool::fail_full(size, name_of(kind));
  c.move(int64_t(size), kind);
  return p;
}

void release(void* p, size_t bytes, MemoryKind kind) noexcept {
  if (!p) return;
  const size_t size = memory::size_class(bytes);
  if (size <= pool::kMost) {
    pool::give(p, size);
    return count_small(-int64_t(size), kind);
  }
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.move(-int64_t(size), kind);
  c.give(p, size);
}

void count(int64_t bytes, MemoryKind kind) {
  std::lock_guard lock(cache().mutex);
  cache().move(bytes, kind);
}

void* take_scratch(size_t bytes) {
  const size_t size = memory::size_class(bytes);
  if (size > pool::kMost && size <= Kept::kMost)
    if (void* p = kept.take(size)) return p;
  return allocate(bytes, MemoryKind::scratch);
}

void give_scratch(void* p, size_t bytes) noexcept {
  if (!kept.give(p, memory::size_class(bytes))) release(p, bytes, MemoryKind::scratch);
}

MemoryStats stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  const ByKind now = c.count();
  // Between two threads a block may for a moment count as given back before it does as taken.
  auto positive = [](int64_t bytes) { return size_t(std::max<int64_t>(0, bytes)); };
  MemoryStats all;
  all.total = {positive(Cache::total(now)), size_t(c.total_peak)};
  for (size_t k = 0; k < kMemoryKinds; ++k) all.by_kind[k] = {positive(now[k]), size_t(c.peak[k])};
  all.most = size_t(c.most);
  all.cached = c.blocks.idle() + pool::kept() + kept.idle();
  return all;
}

size_t physical() { return size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGE_SIZE)); }

void reset_peak() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.peak = c.count();
  c.total_peak = Cache::total(c.peak);
}

void empty_cache() {
  kept.clear();
  pool::clear();
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.blocks.trim(0);
  ::malloc_trim(0);
}

}  // namespace memory

MemoryScope::MemoryScope(MemoryKind kind) : outer_(current_kind) { current_kind = kind; }
MemoryScope::~MemoryScope() { current_kind = outer_; }
MemoryKind MemoryScope::current() { return current_kind; }

}  // namespace minim
