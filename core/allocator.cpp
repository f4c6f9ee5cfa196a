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

struct Cache {
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  MemoryStats stats;

  ~Cache() {
    for (auto& [size, blocks] : free)
      for (void* p : blocks) std::free(p);
  }
  void count(size_t bytes, MemoryKind kind, bool taken) {
    for (MemoryStats::Bytes* b : {&stats.total, &stats.by_kind[size_t(kind)]}) {
      b->current = taken ? b->current + bytes : b->current - bytes;
      b->peak = std::max(b->peak, b->current);
    }
  }
};

Cache& cache() {
  static Cache* c = new Cache;  // outlives every static tensor
  return *c;
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
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  std::vector<void*>& blocks = c.free[size];
  void* p = nullptr;
  if (!blocks.empty()) {
    p = blocks.back();
    blocks.pop_back();
    c.stats.cached -= size;
  } else {
    constexpr size_t kMost = size_t{1} << 40;  // no machine has it, and sanitizers end the program
    p = size < kMost ? std::aligned_alloc(kAlignment, size) : nullptr;
    if (!p)
      fail("out of memory: ", size, " bytes for ", name_of(kind), " (", c.stats.total.current,
           " bytes in use)");
  }
  c.count(size, kind, true);
  return p;
}

void release(void* p, size_t bytes, Device, MemoryKind kind) noexcept {
  if (!p) return;
  size_t size = size_class(bytes);
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.free[size].push_back(p);
  c.stats.cached += size;
  c.count(size, kind, false);
}

MemoryStats stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  return c.stats;
}

size_t physical() { return size_t(::sysconf(_SC_PHYS_PAGES)) * size_t(::sysconf(_SC_PAGE_SIZE)); }

void reset_peak() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.stats.total.peak = c.stats.total.current;
  for (auto& b : c.stats.by_kind) b.peak = b.current;
}

void empty_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  for (auto& [size, blocks] : c.free) {
    for (void* p : blocks) std::free(p);
    blocks.clear();
  }
  c.stats.cached = 0;
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
