#include "minim/core/pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "minim/core/allocator.h"
#include "minim/core/error.h"

namespace minim::pool {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr unsigned kRoom = 0;  // it watches each block
#else
constexpr unsigned kRoom = 4096;  // blocks that a list holds at most
#endif

struct Block {
  Block* next;
};
struct List {
  Block* first;
  unsigned room;  // for how many more; none before the thread is known, and after its end
};
// Without a destructor, so that no access has to ask whether it is there.
thread_local List lists[kLists];
thread_local bool ended = false;

struct AtThreadEnd {
  AtThreadEnd() {
    for (List& list : lists) list.room = kRoom;
  }
  ~AtThreadEnd() {
    clear();
    for (List& list : lists) list.room = 0;
    ended = true;
  }
};
void know_this_thread() {
  if (!ended) static thread_local AtThreadEnd at_end;
}

size_t list_of(size_t bytes) { return bytes <= kStep ? 0 : (bytes - 1) / kStep; }

[[gnu::noinline]] void* from_system(size_t bytes) noexcept {
  know_this_thread();
  const size_t size = std::max<size_t>(1, (bytes + kStep - 1) / kStep) * kStep;
  if (void* p = std::aligned_alloc(kStep, size)) return p;
  memory::empty_cache();
  return std::aligned_alloc(kStep, size);
}

[[gnu::noinline]] void to_system(void* p) noexcept {
  know_this_thread();
  std::free(p);
}

}  // namespace

void* take(size_t bytes) noexcept {
  if (bytes > kMost) return from_system(bytes);
  List& list = lists[list_of(bytes)];
  Block* p = list.first;
  if (!p) return from_system(bytes);
  list.first = p->next;
  ++list.room;
  return p;
}

void give(void* p, size_t bytes) noexcept {
  if (bytes > kMost) return to_system(p);
  List& list = lists[list_of(bytes)];
  if (list.room == 0) return to_system(p);
  --list.room;
  list.first = new (p) Block{list.first};
}

void fail_full(size_t bytes, const char* what) {
  fail("out of memory: ", bytes, " bytes for ", what, " (", memory::stats().total.current,
       " bytes in use)");
}

void fail_full(std::string_view call) {
  fail("[", call, "] out of memory for a few bytes (", memory::stats().total.current,
       " bytes of tensors in use)");
}

size_t kept() {
  size_t bytes = 0;
  for (size_t k = 0; k < kLists; ++k)
    for (Block* b = lists[k].first; b; b = b->next) bytes += (k + 1) * kStep;
  return bytes;
}

void clear() noexcept {
  for (List& list : lists)
    while (Block* b = list.first) {
      list.first = b->next;
      ++list.room;
      std::free(b);
    }
}

}  // namespace minim::pool
