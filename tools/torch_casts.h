// tools/torch_casts.h -- PyTorch's autocast lists for CUDA beside the rows of ops.def, and why they
// differ where they do. The policy `torch` follows these lists on every device.
#pragma once
#include <span>

#include "minim/ops/op.h"

namespace minim {

/// Names on one of PyTorch's lists that have the same answer here.
struct TorchCasts {
  const char* names;   ///< as PyTorch registers or documents them, separated by blanks
  Cast cast;           ///< its three lists that end in fp32 results are all `fp32`
  const char* row;     ///< minim's row; null where there is none
  const char* reason;  ///< of a difference; null where there is none
};
std::span<const TorchCasts> torch_casts();

/// The row of ops.def that entry.row names. @throws Error where there is none.
const OpRow& row_of(const TorchCasts& entry);

}  // namespace minim
