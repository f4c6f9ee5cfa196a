// core/probe.h -- what may watch the numbers: counts at each store to 16 bits, and calls around
// every op. Off (null) by default, at the cost of one predictable branch.
#pragma once
#include <cstdint>

namespace minim {

struct OpRow;
struct OpArgs;

/// Where a run's numbers are watched. Methods may be called from several threads at once.
class Probe {
 public:
  virtual ~Probe() = default;
  /// After a kernel ran; the bool is false for the forward kernel, true for the backward one.
  virtual void after_op(const OpRow&, const OpArgs&, bool /*backward*/) {}
  /// One block was rounded to 16 bits: of `nonzero` fp32 values that were not 0, `lost` became 0.
  /// Or in place: of `nonzero` addends that were not 0, `lost` left their element as it was.
  virtual void stored_half(int64_t /*nonzero*/, int64_t /*lost*/) {}

  static Probe* current() { return current_; }

 private:
  friend class ProbeScope;
  [[gnu::visibility("default")]] static inline thread_local Probe* current_ = nullptr;
};

class ProbeScope {
 public:
  explicit ProbeScope(Probe* probe) : outer_(Probe::current_) { Probe::current_ = probe; }
  ~ProbeScope() { Probe::current_ = outer_; }
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  Probe* outer_;
};

}  // namespace minim
