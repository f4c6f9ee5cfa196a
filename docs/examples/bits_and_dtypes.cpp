// Chapter 1: what 16 bits hold and what they lose.
#include <cstdio>

#include "minim/core/half.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;

int main() {
  expect("f16 ends at 65504", float(f16(65504.f)) == 65504.f && float(f16(65520.f)) == INFINITY);
  expect("f16 loses 2^-25, bf16 does not",
         float(f16(0x1p-25f)) == 0.f && float(bf16(0x1p-25f)) == 0x1p-25f);
  expect("bf16 counts to 256", float(bf16(257.f)) == 256.f);
  expect("a double is rounded once", float(f16(1 + 0x1p-11 + 0x1p-40)) == 1.0009765625f);
  expect("f16 with bf16 is f32", promote_types(DType::f16, DType::bf16) == DType::f32);

  Tensor weight = full({1}, 1.0, DType::bf16), update = full({1}, -6e-4, DType::bf16);
  expect("1 - 0.0006 is still 1 in bf16", (weight + update).item() == 1.0);
  expect("a number keeps the tensor's dtype", (weight * 2.0).dtype() == DType::bf16);
  std::printf("all as the chapter says\n");
}
