#include "minim/core/cuda/device.h"

namespace minim::cuda {

std::string unavailable() { return "this build's library runs on the CPU only"; }

}  // namespace minim::cuda
