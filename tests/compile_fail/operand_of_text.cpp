// expect: invalid initialization of reference of type
#include "minim/ops/functional.h"

minim::Tensor f(const minim::Tensor& x) {
#ifdef MISTAKE
  return minim::maximum(x, "0");  // would be true
#else
  return minim::maximum(x, 0);
#endif
}
