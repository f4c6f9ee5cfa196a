// expect: no matching function for call to 'minim::Tensor::Tensor(double [3])'
#include "minim/core/tensor.h"

void use() {
  double values[3] = {1, 2, 3};
#ifdef MISTAKE
  minim::Tensor x(values);  // would be the bool true
#else
  minim::Tensor x = minim::tensor(std::span<const double>(values), {3});
#endif
  (void)x;
}
