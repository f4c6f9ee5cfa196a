// expect: conversion from 'const float*' to non-scalar type 'minim::Tensor' requested
#include "minim/core/tensor.h"

void use(const float* values) {
#ifdef MISTAKE
  minim::Tensor x = values;  // would be the bool true
#else
  minim::Tensor x = values[0];
#endif
  (void)x;
}
