// core/pool.h -- blocks of up to 1 KB without a lock: each thread keeps those that it frees, in
// lists by size. What lives for one op is made here: storages, tensors, nodes of the tape.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::pool {

inline constexpr size_t kStep = 64;  ///< sizes are its multiples, and so are the addresses
inline constexpr size_t kMost = 1024;
inline constexpr size_t kLists = kMost / kStep;

/// Uninitialised; null where the system has no more. Larger blocks are the system's.
void* take(size_t bytes) noexcept;
/// @throws Error with the size and what is in use.
[[noreturn]] void fail_full(size_t bytes, const char* what);
/// For a std::bad_alloc of the standard library's containers, caught where a call began.
[[noreturn]] void fail_full(std::string_view call);
/// What take(bytes) gave, on this or another thread.
void give(void* p, size_t bytes) noexcept;
/// Bytes that this thread keeps.
size_t kept();
/// Gives them back to the system.
void clear() noexcept;

template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}
  T* allocate(size_t n) {
    if (void* p = take(n * sizeof(T))) return static_cast<T*>(p);
    fail_full(n * sizeof(T), "the records of tensors");
  }
  void deallocate(T* p, size_t n) noexcept { give(p, n * sizeof(T)); }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;  // no zeros first
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
  friend bool operator==(Allocator, Allocator) { return true; }
};

template <class T>
using Vector = std::vector<T, Allocator<T>>;

/// std::make_shared, from here.
template <class T, class... Args>
std::shared_ptr<T> make(Args&&... args) {
  return std::allocate_shared<T>(Allocator<T>(), std::forward<Args>(args)...);
}

}  // namespace minim::pool
