#include "minim/core/cpu/kernels.inc.h"

namespace minim {
extern const IsaKernels kernels_base;
constinit const IsaKernels kernels_base = isa_kernels(0, "base");
}  // namespace minim
