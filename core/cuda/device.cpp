#include "minim/core/cuda/device.h"

#include <cuda_runtime_api.h>

#include "minim/core/backend.h"
#include "minim/core/error.h"

namespace minim::cuda {

std::string unavailable() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return std::string("no device found: ") + cudaGetErrorString(status);
  return count > 0 ? "" : "no device found";
}

const Backend& backend() {
  fail(
      "training on CUDA is not built yet: the rows' kernels compile, memory and matrix products do "
      "not; use the CPU");
}

}  // namespace minim::cuda
