// Chapter 2: gelu from the call to the gradient.
#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;

int main() {
  Tensor x = full({2, 8}, 0.5), w = full({4, 8}, 0.25);
  w.set_requires_grad();
  Tensor y;
  {
    amp::Autocast on(DType::bf16);
    y = gelu(linear(x, w));
  }
  std::printf("%s", dump(y).c_str());
  expect("the linear ran in bf16, and gelu kept it", y.dtype() == DType::bf16);
  sum(y.to(DType::f32)).backward();
  expect("the weight's gradient is f32 again", w.grad().dtype() == DType::f32);

  // d gelu / dx at 1 (x w summed over 8 = 1) is Phi(1) + phi(1) = 1.0833; times x = 0.5 and two
  // rows.
  expect("and it is right", std::fabs(w.grad().select(0, 0).select(0, 0).item() - 1.0833) < 0.01);
}
