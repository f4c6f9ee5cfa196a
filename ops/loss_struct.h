// ops/loss_struct.h -- what losses share.
#pragma once
#include <cstdint>

namespace minim {

/// What becomes of the losses of single elements.
enum class Reduction : uint8_t { mean, sum, none };

}  // namespace minim
