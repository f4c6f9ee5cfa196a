// A second device, for tests: the CPU's kernels on memory that the host cannot touch. It is mapped
// twice: tensors hold addresses that are closed, and a backend's verbs turn them into open ones.
// Whatever else touches it is reported with its backtrace, and fails the run: that code would not
// work on a device. Stands in for the CUDA one, which this program's library has not;
// MINIM_DEVICE=cuda makes it the default.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // a touch is not the end of a test
#include <doctest/doctest.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "minim/core/backend.h"
#include "minim/core/cuda/device.h"
#include "minim/core/error.h"

namespace minim {
namespace {

constexpr size_t kRoom = size_t{64} << 30;  // reserved, not used

/// The memory, mapped twice.
struct Room {
  static std::byte* map(int file, int how) {
    void* p = ::mmap(nullptr, kRoom, how, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (p == MAP_FAILED) fail("the closed device cannot map its memory");
    return static_cast<std::byte*>(p);
  }
  Room() {
    const int file = ::memfd_create("closed device", 0);
    if (::ftruncate(file, off_t(kRoom)) != 0) fail("the closed device has no memory");
    closed = map(file, PROT_NONE), open = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
  }
  bool holds(const void* p) const { return p >= closed && p < closed + kRoom; }

  std::byte *closed, *open;
  std::mutex mutex;
  size_t used = 0;
  std::map<size_t, std::vector<void*>> idle;  ///< by size
  std::atomic<int> touches{0};
};
Room& room() {
  static Room* room = new Room;  // outlives global tensors
  return *room;
}

size_t rounded(size_t bytes) { return std::max<size_t>(64, std::bit_ceil(bytes)); }

void* take(size_t bytes, MemoryKind kind) {
  memory::count(int64_t(bytes), kind);
  std::lock_guard lock(room().mutex);
  auto& idle = room().idle[rounded(bytes)];
  if (idle.empty()) {
    if (room().used + rounded(bytes) > kRoom) fail("the closed device has no more memory");
    idle.push_back(room().closed + room().used);
    room().used += rounded(bytes);
  }
  void* p = idle.back();
  idle.pop_back();
  return p;
}
void give(void* p, size_t bytes, MemoryKind kind) noexcept {
  memory::count(-int64_t(bytes), kind);
  std::lock_guard lock(room().mutex);
  room().idle[rounded(bytes)].push_back(p);
}

/// What a verb sees of what it is given.
template <class T>
T opened(T x) {
  if constexpr (std::is_pointer_v<T>) {
    if (room().holds(x)) x = T(uintptr_t(x) - uintptr_t(room().closed) + uintptr_t(room().open));
  } else if constexpr (std::is_same_v<T, Arg>) {
    x.data = opened(x.data);
  } else if constexpr (std::is_same_v<T, optim::Update>) {
    for (Flat* flat : {&x.param, &x.grad}) flat->data = opened(flat->data);
    for (void*& state : x.states) state = opened(state);
    x.master = opened(x.master);
  } else if constexpr (std::is_same_v<T, Flat>) {
    x.data = opened(x.data);
  }
  return x;
}
template <class T>
std::vector<T> opened(std::span<const T> list) {
  std::vector<T> all;
  for (const T& x : list) all.push_back(opened(x));
  return all;
}
void launch(Kernel kernel, OpArgs& args) {
  OpArgs inside = args;
  for (int k = 0; k < args.n_in; ++k)
    for (Arg* arg : {&inside.in[k], &inside.grad_in[k]}) *arg = opened(*arg);
  for (int k = 0; k < args.n_out; ++k)
    for (Arg* arg : {&inside.out[k], &inside.grad_out[k]}) *arg = opened(*arg);
  kernel(inside);
}
/// A verb of the CPU.
template <auto verb>
struct Opened;
template <class R, class... Args, R (*Backend::*verb)(Args...)>
struct Opened<verb> {
  static R run(Args... args) { return (cpu::kBackend.*verb)(opened(args)...); }
};

/// Says where, and lets it pass.
void touched(int, siginfo_t* info, void*) {
  if (!room().holds(info->si_addr)) {
    ::signal(SIGSEGV, SIG_DFL);
    return;
  }
  constexpr uintptr_t kPage = 4096;
  ::mprotect(reinterpret_cast<void*>(uintptr_t(info->si_addr) / kPage * kPage), kPage,
             PROT_READ | PROT_WRITE);
  constexpr int kMost = 3;
  if (room().touches++ >= kMost) return;
  void* frames[14];
  const char what[] = "closed device: touched by the host\n";
  if (::write(2, what, sizeof what - 1) < 0) return;
  ::backtrace_symbols_fd(frames + 2, ::backtrace(frames, 14) - 2, 2);
}

/// Names the test whose touches they were.
struct Listener : doctest::IReporter {
  explicit Listener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData& test) override { name_ = test.m_name; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {
    if (const int n = room().touches.exchange(0)) {
      std::fprintf(stderr, "closed device: %d touches in %s\n", n, name_);
      all += n;
      ::mprotect(room().closed, room().used, PROT_NONE);
    }
  }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
  static inline int all = 0;

 private:
  const char* name_ = "";
};

}  // namespace

namespace cuda {

std::string unavailable() { return ""; }

const Backend& backend() {
  static const Backend closed{
      .name = "the closed device",
      .kernels = KernelSet::cpu,
      .allocate = take,
      .release = give,
      .upload = Opened<&Backend::upload>::run,
      .download = Opened<&Backend::download>::run,
      .wait = [] {},
      .launch = launch,
      .copy = Opened<&Backend::copy>::run,
      .fill = Opened<&Backend::fill>::run,
      .sum_to = Opened<&Backend::sum_to>::run,
      .survey = Opened<&Backend::survey>::run,
      .multiply = Opened<&Backend::multiply>::run,
      .power_sum = Opened<&Backend::power_sum>::run,
      .adopt = Opened<&Backend::adopt>::run,
      .update = Opened<&Backend::update>::run,
  };
  return closed;
}

}  // namespace cuda
}  // namespace minim

DOCTEST_REGISTER_LISTENER("closed device", 1, minim::Listener);

int main(int argc, char** argv) {
  struct sigaction action {};
  action.sa_sigaction = minim::touched;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, nullptr);
  const int result = doctest::Context(argc, argv).run();
  return minim::Listener::all > 0 ? 1 : result;
}
