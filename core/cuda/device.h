// core/cuda/device.h -- whether a CUDA device can be used. device.cpp asks the driver;
// not_built.cpp stands in for it in a build without CUDA.
#pragma once
#include <string>

namespace minim::cuda {

/// Why no CUDA device can be used; empty when one can.
std::string unavailable();

}  // namespace minim::cuda
