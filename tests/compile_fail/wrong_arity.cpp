// expect: could not convert 'x' from 'const minim::Tensor'
#include "minim/ops/functional.h"

minim::Tensor f(const minim::Tensor& x) {
#ifdef MISTAKE
  return minim::exp(x, x);
#else
  return minim::exp(x);
#endif
}
