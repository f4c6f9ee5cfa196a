// autograd/anomaly.h -- stops at the first op that makes a NaN or an infinity, and says where.
#pragma once
#include "minim/autograd/node.h"
#include "minim/core/probe.h"

namespace minim::autograd {

/// `autograd::Anomaly on;` -- in this scope, on this thread, the first op whose result (forward) or
/// gradient (backward) is not finite throws an Error: op, direction, module path, step, and of each
/// operand its number, dtype, shape, least, largest and mean finite value and how many are not.
/// Two things pass. In forward, minus infinity where an operand brought it: a mask. In backward
/// under a live loss scale, what overflowed: an infinity, and all that comes of gradients that hold
/// one; GradScaler finds it and lowers the scale. A NaN from finite gradients is an error there
/// too. Costs a look at each result; looks at tensors on the CPU.
class Anomaly : public Probe {
 public:
  /// @param step what the message calls the step; -1 is not told.
  explicit Anomaly(int64_t step = -1) : step_(step), outer_(Probe::current()), scope_(this) {}
  void set_step(int64_t step) { step_ = step; }
  void after_op(const OpRow& row, const OpArgs& args, bool backward) override;
  void stored_half(int64_t nonzero, int64_t lost) override {
    if (outer_) outer_->stored_half(nonzero, lost);
  }

 private:
  int64_t step_;
  Probe* outer_;
  ProbeScope scope_;
};

}  // namespace minim::autograd
