// expect: conversion from 'float' to non-scalar type 'minim::bf16' requested
#include "minim/core/half.h"

float sum(minim::bf16 x, minim::bf16 y) {
#ifdef MISTAKE
  minim::bf16 z = x + y;
#else
  minim::bf16 z(x + y);
#endif
  return z;
}
