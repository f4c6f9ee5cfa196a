// Chapter 13: where a tensor lives, and the one table that a device is.
#include "minim/core/backend.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;

int main() {
  const Tensor x = arange(6, DType::f32).reshape({2, 3});
  expect("tensors are made on the CPU unless somebody says otherwise", x.device() == kHost);
  {
    const DeviceScope scope(kHost);  // or device_named("cuda")
    expect("in a scope, on its device", zeros({2}).device() == default_device());
  }
  expect("to(device) is the tensor itself where it is there already",
         x.to(kHost).shared() == x.shared());
  expect("what is read on the host comes from on_host()", x.on_host().span<float>()[5] == 5);

  const Tensor y = empty({3, 2});
  backend(y.device()).copy(arg_of(x.transpose(0, 1)), arg_of(y));
  expect("a verb takes its device from its arguments", y.to_vector()[1] == 3);
  expect("a row's kernels stand by whose they are",
         Op::gelu.forward[size_t(backend(kHost).kernels)] != nullptr);

  if (!available(DeviceKind::cuda))
    expect_error("a device that is not there says why", "not available",
                 [] { device_named("cuda"); });
}
