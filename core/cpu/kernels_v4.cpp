#include "minim/core/cpu/kernels.inc.h"

namespace minim {
extern const IsaKernels kernels_v4;
constinit const IsaKernels kernels_v4 = isa_kernels(2, "v4");
}  // namespace minim
