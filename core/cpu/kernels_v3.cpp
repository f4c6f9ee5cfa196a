#include "minim/core/cpu/kernels.inc.h"

namespace minim {
extern const IsaKernels kernels_v3;
constinit const IsaKernels kernels_v3 = isa_kernels(1, "v3");
}  // namespace minim
