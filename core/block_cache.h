// core/block_cache.h -- idle blocks of more than 1 KB, kept by size to be used again. Those that
// have been idle longest go back to the system first, so that sizes nobody asks for any more do not
// stay.
#pragma once
#include <array>
#include <bit>
#include <cstddef>

namespace minim::memory {

inline constexpr size_t kAlignment = 64;

/// Rounds up to one of eight sizes per power of two.
constexpr size_t size_class(size_t bytes) {
  if (bytes <= 8 * kAlignment)
    return bytes <= kAlignment ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

/// Not safe for several threads: its owner has a lock. Sizes are size classes. The lists go through
/// the idle blocks themselves, so giving one back needs no memory and cannot fail.
class BlockCache {
 public:
  /// An idle block, or a new one; null where the system has no more.
  void* take(size_t size) noexcept;
  void give(void* p, size_t size) noexcept;
  /// Gives blocks back to the system, those idle longest first, until at most `bytes` are idle.
  void trim(size_t bytes) noexcept;
  size_t idle() const { return idle_; }

 private:
  struct Block {
    size_t size;
    Block *next, *previous;  ///< of its size; the newest is first
    Block *newer, *older;    ///< of all
  };
  static size_t list_of(size_t size) {
    const size_t power = size_t(std::bit_width(size)) - 1;
    return 8 * power + (size >> (power - 3)) % 8;
  }
  void unlink(Block* b) noexcept;

  std::array<Block*, 8 * 64> lists_{};
  Block *newest_ = nullptr, *oldest_ = nullptr;
  size_t idle_ = 0;
};

}  // namespace minim::memory
