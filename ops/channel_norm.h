// ops/channel_norm.h -- what batch_norm and group_norm share. x (N, C, ...) is seen as planes, one
// per (n, c); sets of planes are normalised together, (x - mean) / sqrt(var + eps), in two passes
// and fp32 (f64 for f64), then scaled and shifted by channel.
#pragma once
#include "minim/ops/contract.h"

namespace minim {

struct ChannelNorm {
  OpArgs& args;       ///< out[1] and out[2] are the sets' means and variances (of the population)
  Index sets, count;  ///< set s has `count` planes: s + k * C, or s * count + k where `adjacent`
  bool adjacent;
  double eps;
  int weight;     ///< the operand; bias is the next one
  int mean = -1;  ///< the operand that gives the sets' means, and the next their variances;
                  ///< -1: those of x

  void forward() const;
  void backward() const;
};

/// The number of channels. @throws Error unless x is (N, C, ...) and each other operand that was
/// given is (C).
Index check_channels(const OpArgs& args, std::span<const Operand> operands, const char* op);

}  // namespace minim
