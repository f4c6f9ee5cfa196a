// Chapter 3: what a row's cast does, and what happens without it.
#include "minim/amp/autocast.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;

int main() {
  Tensor x = tensor({12.0}, DType::f16), a = full({4, 4}, 1.0);
  {
    amp::Autocast on(DType::f16);
    expect("exp is fp32: it fits", std::isfinite(exp(x).item()) && exp(x).dtype() == DType::f32);
    expect("matmul is lower", matmul(a, a).dtype() == DType::f16);
    expect("f64 is never cast", exp(full({1}, 1.0, DType::f64)).dtype() == DType::f64);
    {
      amp::Autocast off(amp::Autocast::off);
      expect("off inside on", matmul(a, a).dtype() == DType::f32);
    }
  }
  {
    amp::Autocast on(DType::f16, {{Op::exp, Cast::keep}});
    expect("with exp kept in f16 it is inf", std::isinf(exp(x).item()));
  }
  {
    amp::Autocast on(DType::f16);
    Tensor h = matmul(a, a);
    amp::Autocast head(DType::f16, {{Op::linear, Cast::fp32}});
    expect("a head in fp32 takes 16-bit activations", linear(h, a).dtype() == DType::f32);
    amp::Autocast inside(DType::bf16);
    expect("and an override holds in regions inside", linear(h, a).dtype() == DType::f32);
  }
  {
    amp::Autocast lean(DType::bf16, amp::Policy::lean);
    expect("lean keeps softmax in 16 bits",
           softmax(a.to(DType::bf16), {.dim = -1}).dtype() == DType::bf16);
  }
  {
    amp::Autocast on(DType::f16);
    try {
      bce(full({1}, 0.5), full({1}, 1.0));
      expect("bce is banned", false);
    } catch (const Error& e) {
      std::printf("%s\n", e.what());
    }
  }
}
