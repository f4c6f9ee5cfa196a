// core/allocator.h -- the one way the host's memory is had: a caching allocator that counts bytes,
// now and at the peak, by what they are for. Freed blocks are kept for reuse in size classes (at
// most 25 % is lost to rounding), together with those in use at most an eighth more than were ever
// in use, and given back when the system has no more for another size (core/block_cache.h). Blocks
// of up to 1 KB are each thread's own, without a lock (core/pool.h): a peak may miss what the last
// 16 KB of them that a thread took added to it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace minim {

enum class MemoryKind : uint8_t {
  activations,
  weights,
  masters,
  moments,
  gradients,
  casts,
  scratch,
  data
};
inline constexpr size_t kMemoryKinds = 8;
const char* name_of(MemoryKind kind);

struct MemoryStats {
  struct Bytes {
    size_t current = 0, peak = 0;
  };
  Bytes total;
  std::array<Bytes, kMemoryKinds> by_kind;
  size_t most = 0;    ///< bytes in use, ever; reset_peak() leaves it
  size_t cached = 0;  ///< bytes held for reuse: by no thread, and by this one
};

namespace memory {
/// 64-byte aligned, uninitialised. @throws Error when the system has no more, naming the size and
/// the kind.
void* allocate(size_t bytes, MemoryKind kind);
void release(void* p, size_t bytes, MemoryKind kind) noexcept;
/// Of the memory of another device: counts what was taken, or given back (negative).
void count(int64_t bytes, MemoryKind kind);
/// For Scratch: blocks that stay with this thread, without a lock; one that another core has
/// written is slow to fetch.
void* take_scratch(size_t bytes);
void give_scratch(void* p, size_t bytes) noexcept;
MemoryStats stats();
/// Bytes that this machine has.
size_t physical();
void reset_peak();
/// Gives cached blocks back to the system: all that no thread keeps, and what this one does. What
/// other threads keep, small blocks and 8 buffers, is given back as they end.
void empty_cache();
}  // namespace memory

/// What the storages made in this scope, on this thread, are counted as.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  static MemoryKind current();

 private:
  MemoryKind outer_;
};

/// A kernel's temporary buffer. Its thread keeps the block for the next one.
template <class T>
class Scratch {
 public:
  explicit Scratch(size_t n) : n_(n), p_(static_cast<T*>(memory::take_scratch(n * sizeof(T)))) {}
  ~Scratch() { memory::give_scratch(p_, n_ * sizeof(T)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return p_; }
  T& operator[](size_t i) const { return p_[i]; }

 private:
  size_t n_;
  T* p_;
};

}  // namespace minim
