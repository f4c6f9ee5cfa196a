#include "minim/core/allocator.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "minim/core/cuda/device.h"
#include "minim/core/error.h"
#include "minim/core/pool.h"

namespace minim {

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, kMemoryKinds> names{
      "activations", "weights", "masters", "moments", "gradients", "casts", "scratch", "data"};
  return names[size_t(kind)];
}

namespace {

constexpr size_t kAlignment = 64;

/// Rounds up to one of four sizes per power of two.
size_t size_class(size_t bytes) {
  if (bytes <= 4 * kAlignment)
    return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  size_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

using ByKind = std::array<int64_t, kMemoryKinds>;

struct Cache {
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  size_t cached = 0;
  ByKind current{}, peak{};
  int64_t total = 0, total_peak = 0;  // signed: a block may be counted as given before as taken

  ~Cache() {
    for (auto& [size, blocks] : free)
      for (void* p : blocks) std::free(p);
  }
  void count(const ByKind& bytes) {
    for (size_t k = 0; k < kMemoryKinds; ++k) {
      peak[k] = std::max(peak[k], current[k] += bytes[k]);
      total += bytes[k];
    }
    total_peak = std::max(total_peak, total);
  }
};

Cache& cache() {
  static Cache* c = new Cache;  // outlives every static tensor
  return *c;
}

/// Small blocks are the pool's, without the lock. What a thread takes of them and gives back is
/// told to the cache when it was much, and wherever the cache is locked anyway.
constexpr int64_t kMostUntold = 1 << 14;
struct Untold {
  ByKind bytes;
  int64_t room;  ///< bytes that may move until it is told; at first none
};
thread_local Untold untold{};

void tell_locked(Cache& c) {
  static thread_local struct AtThreadEnd {
    ~AtThreadEnd() {
      std::lock_guard lock(cache().mutex);
      cache().count(untold.bytes);
    }
  } at_end;
  c.count(untold.bytes);
  untold = {{}, kMostUntold};
}

void count_small(int64_t bytes, MemoryKind kind) {
  untold.bytes[size_t(kind)] += bytes;
  if ((untold.room -= std::abs(bytes)) >= 0) return;
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  tell_locked(c);
}

void count_large(Cache& c, int64_t bytes, MemoryKind kind) {
  untold.bytes[size_t(kind)] += bytes;
  tell_locked(c);
}

thread_local MemoryKind current_kind = MemoryKind::activations;

}  // namespace

namespace memory {

void* allocate(size_t bytes, Device device, MemoryKind kind) {
  if (device.kind != DeviceKind::cpu)
    fail(
        "training on CUDA is not built yet: the rows' kernels compile, memory and matrix products "
        "do not; use the CPU");
  size_t size = size_class(bytes);
  if (size <= pool::kMost) {
    void* small = pool::take(size);
    count_small(int64_t(size), kind);
    return small;
  }
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  std::vector<void*>& blocks = c.free[size];
  void* p = nullptr;
  if (!blocks.empty()) {
    p = blocks.back();
    blocks.pop_back();
    c.cached -= size;
  } else {
    constexpr size_t kMost = size_t{1} << 40;  // no machine has it, and sanitizers end the program
    p = size < kMost ? std::aligned_alloc(kAlignment, size) : nullptr;
    if (!p)
      fail("out of memory: ", size, " bytes for ", name_of(kind), " (", c.total, " bytes in use)");
  }
  count_large(c, int64_t(size), kind);
  return p;
}

void release(void* p, size_t bytes, Device, MemoryKind kind) noexcept {
  if (!p) return;
  size_t size = size_class(bytes);
  if (size <= pool::kMost) {
    pool::give(p, size);
    return count_small(-int64_t(size), kind);
  }
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.free[size].push_back(p);
  c.cached += size;
  count_large(c, -int64_t(size), kind);
}

MemoryStats stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  tell_locked(c);
  auto bytes = [](int64_t now, int64_t peak) {
    return MemoryStats::Bytes{size_t(std::max<int64_t>(now, 0)), size_t(peak)};
  };
  MemoryStats all{.total = bytes(c.total, c.total_peak), .by_kind = {}, .cached = c.cached};
  for (size_t k = 0; k < kMemoryKinds; ++k) all.by_kind[k] = bytes(c.current[k], c.peak[k]);
  all.cached += pool::kept();
  return all;
}

size_t physical() { return size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGE_SIZE)); }

void reset_peak() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  tell_locked(c);
  c.total_peak = c.total;
  c.peak = c.current;
}

void empty_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  for (auto& [size, blocks] : c.free) {
    for (void* p : blocks) std::free(p);
    blocks.clear();
  }
  c.cached = 0;
  pool::clear();
}

}  // namespace memory

MemoryScope::MemoryScope(MemoryKind kind) : outer_(current_kind) { current_kind = kind; }
MemoryScope::~MemoryScope() { current_kind = outer_; }
MemoryKind MemoryScope::current() { return current_kind; }

bool available(DeviceKind kind) { return kind == DeviceKind::cpu || cuda::unavailable().empty(); }

Device device_named(const std::string& name) {
  for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (name != name_of(kind)) continue;
    if (!available(kind))
      fail("device '", name, "' is not available: ", cuda::unavailable(), "; use --device cpu");
    return {kind, 0};
  }
  fail("unknown device '", name, "'; known: cpu, cuda");
}

}  // namespace minim
