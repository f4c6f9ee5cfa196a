// ops/call.h -- the one path that every op takes: check, choose the dtype, cast, shape, run, watch,
// record.
#pragma once
#include <vector>

#include "minim/core/random.h"
#include "minim/core/tensor.h"
#include "minim/ops/op.h"

namespace minim {

/// All outputs of an op, hidden statistics included. Undefined tensors stand for optional operands
/// that are not given.
/// @throws Error naming the op and the operand when an operand is missing, of the wrong kind, on
/// another device, of a dtype that may not be mixed, or of a shape that does not fit.
std::vector<Tensor> call(const OpRow& row, std::span<const Tensor> operands, const Attrs& attrs);
/// The same into `outputs`, one for each of row.outputs: undefined tensors.
void call(const OpRow& row, std::span<const Tensor> operands, const Attrs& attrs,
          std::span<Tensor> outputs);

/// The source of randomness of this thread: each random op takes the next stream of the seed. Every
/// thread begins with {0, 0}, so that two new ones draw equal weights and masks; where they should
/// differ, each begins with manual_seed(derived_seed(seed, index)) (core/random.h).
struct Generator {
  uint64_t seed = 0, next_stream = 0;
};
Generator& generator();
void manual_seed(uint64_t seed);

}  // namespace minim
