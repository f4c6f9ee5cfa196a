// expect: could not convert
#include "minim/ops/functional.h"

minim::Tensor f(const minim::Tensor& x) {
#ifdef MISTAKE
  return minim::softmax(x, {.axis = -1});
#else
  return minim::softmax(x, {.dim = -1});
#endif
}
