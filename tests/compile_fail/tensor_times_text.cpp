// expect: no match for 'operator*' (operand types are 'const minim::Tensor' and 'const char [4]')
#include "minim/ops/functional.h"

minim::Tensor f(const minim::Tensor& x) {
#ifdef MISTAKE
  return x * "2.5";  // would be times true
#else
  return x * 2.5;
#endif
}
