// core/backend.h -- the one seam between minim and what it computes on. A backend is a table: its
// memory, and what is done to tensors beside the kernels of rows, of which it names a column
// (OpRow::forward and ::backward). Code above core asks no tensor where it is: copy(), fill(),
// sum_to() and launch() go by the device of their arguments.
#pragma once
#include <span>

#include "minim/core/allocator.h"
#include "minim/core/device.h"
#include "minim/core/number.h"
#include "minim/core/op_args.h"
#include "minim/core/step.h"

namespace minim {

/// Whose kernels: a column of each row's.
enum class KernelSet : uint8_t { cpu, cuda };
inline constexpr size_t kKernelSets = 2;

struct Backend {
  const char* name;
  KernelSet kernels;

  /// Uninitialised, at least 64-byte aligned. @throws Error where there is no more, naming the size
  /// and the kind.
  void* (*allocate)(size_t bytes, MemoryKind kind);
  void (*release)(void* p, size_t bytes, MemoryKind kind) noexcept;
  /// Between the host's memory and its own; `from` may change and `to` be read at return.
  void (*upload)(void* to, const void* from, size_t bytes);
  void (*download)(void* to, const void* from, size_t bytes);
  /// Until all that was begun is done.
  void (*wait)();

  /// Calls a kernel of its set.
  void (*launch)(Kernel kernel, OpArgs& args);
  /// Of any dtype and strides, all in its memory.
  void (*copy)(const Arg& from, const Arg& to);
  void (*fill)(const Arg& to, const detail::Number& value);
  void (*sum_to)(const Arg& from, const Arg& to, Index by);

  /// How bad the worst of each gradient is, as the factors make it; changes nothing.
  void (*survey)(std::span<const Flat> gradients, amp::Factors factors, amp::Finite* kinds);
  /// In place, and how bad the worst product of each is.
  void (*multiply)(std::span<const Flat> gradients, double factor, amp::Finite* kinds);
  /// The sum over all of |x * factor / unit|^p; for p = infinity the largest.
  double (*power_sum)(std::span<const Flat> gradients, double p, double factor, double unit);
  /// Whether a 16-bit parameter is not its master's rounding somewhere; there the master takes what
  /// was written, if `take`.
  bool (*adopt)(const Flat& param, float* master, bool take);
  /// @throws std::bad_alloc before anything is changed.
  void (*update)(std::span<const optim::Update> updates);
};

const Backend& backend(Device device);

namespace cpu {
extern const Backend kBackend;
}
namespace cuda {
/// @throws Error where this build or machine has no CUDA device.
const Backend& backend();
}  // namespace cuda

}  // namespace minim
