#include "minim/core/block_cache.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace minim::memory {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kMapped = size_t{1} << 62;  // they watch what malloc gives
#else
/// Blocks from here on are mapped by themselves: freed ones really go back, and leave no holes.
constexpr size_t kMapped = size_t{1} << 18;
#endif
constexpr size_t kMost = size_t{1} << 40;  // no machine has it; sanitizers end the program

void* from_system(size_t size) noexcept {
  if (size >= kMost) return nullptr;
  if (size < kMapped) return std::aligned_alloc(kAlignment, size);
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void to_system(void* p, size_t size) noexcept {
  size < kMapped ? std::free(p) : void(::munmap(p, size));
}

}  // namespace

void* BlockCache::take(size_t size) noexcept {
  Block* b = lists_[list_of(size)];
  if (!b) return from_system(size);
  unlink(b);
  return b;
}

void BlockCache::give(void* p, size_t size) noexcept {
  Block*& first = lists_[list_of(size)];
  Block* b = new (p) Block{size, first, nullptr, nullptr, newest_};
  if (first) first->previous = b;
  first = b;
  (newest_ ? newest_->newer : oldest_) = b;
  newest_ = b;
  idle_ += size;
}

void BlockCache::trim(size_t bytes) noexcept {
  while (idle_ > bytes) {
    Block* b = oldest_;
    unlink(b);
    to_system(b, b->size);
  }
}

void BlockCache::unlink(Block* b) noexcept {
  (b->previous ? b->previous->next : lists_[list_of(b->size)]) = b->next;
  if (b->next) b->next->previous = b->previous;
  (b->newer ? b->newer->older : newest_) = b->older;
  (b->older ? b->older->newer : oldest_) = b->newer;
  idle_ -= b->size;
}

}  // namespace minim::memory
