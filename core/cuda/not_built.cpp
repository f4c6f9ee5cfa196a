#include "minim/core/backend.h"
#include "minim/core/cuda/device.h"
#include "minim/core/error.h"

namespace minim::cuda {

std::string unavailable() { return "this build's library runs on the CPU only"; }

const Backend& backend() { fail("there is no CUDA device: ", unavailable(), "; use the CPU"); }

}  // namespace minim::cuda
