// core/denormals.h -- what minim does with denormal (subnormal) numbers: it keeps them. A CPU can
// be told to flush those of f32 and f64 to zero, thread by thread; minim never tells it to, and
// makes every thread of its pool do as the thread that calls, so no result depends on who computes
// it.
#pragma once
#include "minim/core/dtype.h"

namespace minim {

/// Whether f32 results below 2^-126 keep their bits on this thread: they do unless the program
/// itself has switched that off (as linking with -ffast-math does).
bool denormals_kept();

/// How many of n dense elements are denormal in their own dtype: not 0, and below its smallest
/// normal number. Those of f16 are ordinary numbers in fp32, where kernels compute. @param dtype a
/// floating one.
int64_t count_denormals(const void* data, DType dtype, Index n);

/// The rounding and flushing of f32 and f64 on this thread.
class FloatMode {
 public:
  static FloatMode current();
  void apply() const;

 private:
  unsigned bits_ = 0;
};

}  // namespace minim
