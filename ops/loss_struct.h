// ops/loss_struct.h -- what losses share.
#pragma once
#include <cstdint>

namespace minim {

/// What becomes of the losses of single elements. batchmean: their sum over the first axis's size,
/// for losses that compare two tensors.
enum class Reduction : uint8_t { mean, sum, none, batchmean };

}  // namespace minim
