// expect: an operand is missing
#include "minim/ops/functional.h"

minim::Tensor f(const minim::Tensor& x, const minim::Tensor& w) {
#ifdef MISTAKE
  return minim::linear(x);
#else
  return minim::linear(x, w);  // the bias is optional
#endif
}
