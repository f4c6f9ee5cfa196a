// expect: conversion from 'float' to non-scalar type 'minim::f16' requested
#include "minim/core/half.h"

float sum(minim::f16 x, minim::f16 y) {
#ifdef MISTAKE
  minim::f16 z = x + y;
#else
  minim::f16 z(x + y);
#endif
  return z;
}
