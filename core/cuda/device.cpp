#include "minim/core/cuda/device.h"

#include <cuda_runtime_api.h>

namespace minim::cuda {

std::string unavailable() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return std::string("no device found: ") + cudaGetErrorString(status);
  return count > 0 ? "" : "no device found";
}

}  // namespace minim::cuda
