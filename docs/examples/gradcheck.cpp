// Chapter 7: gradients against finite differences.
#include "minim/autograd/gradcheck.h"

#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;
using autograd::gradcheck;
using Inputs = std::vector<Tensor>;

/// |central difference - slope| / slope of exp at 1, with a step of eps.
double error_of(double eps, DType dtype) {
  auto f = [&](double x) { return exp(full({}, x, dtype)).item(); };
  double above = full({}, 1 + eps, dtype).item(), below = full({}, 1 - eps, dtype).item();
  if (above == below) return 1;
  return std::fabs((f(above) - f(below)) / (above - below) / std::exp(1.0) - 1);
}

int main() {
  std::printf("       error of the slope of exp at 1, by step:\n");
  for (double eps : {1e-1, 1e-2, 1e-4, 6e-6, 1e-8, 1e-10, 1e-12})
    std::printf("       %7.0e  f64 %.1e  f32 %.1e  f16 %.1e\n", eps, error_of(eps, DType::f64),
                error_of(eps, DType::f32), error_of(eps, DType::f16));
  double best = error_of(6e-6, DType::f64);
  expect("f64 at 6e-6 is right to 1e-10", best < 1e-10);
  expect("a larger step errs more", error_of(1e-2, DType::f64) > 1000 * best);
  expect("and so does a smaller one", error_of(1e-12, DType::f64) > 1000 * best);
  expect("f32 cannot tell a slope from one that is 1e-4 wrong",
         error_of(6e-6, DType::f32) > 1e-4 && error_of(1e-4, DType::f32) > 1e-4);

  Tensor x = tensor({0.3, -0.7, 1.1, 2}, DType::f64).reshape({2, 2});
  Tensor w = tensor({1.3, 0.7, -1.1, 0.2}, DType::f64).reshape({2, 2});
  auto layer = [](const Inputs& v) { return dropout(gelu(matmul(v[0], v[1])), {.p = 0.5}); };
  expect("a layer passes, dropout too", gradcheck(layer, {x, w}).empty());

  // x sigmoid(1.7 x), whose sigmoid is taken as a constant by mistake.
  auto wrong = [](const Inputs& v) { return sum(v[0] * sigmoid(v[0] * 1.7).detach()); };
  auto findings = gradcheck(wrong, {tensor({2, -1}, DType::f64)});
  for (const auto& text : findings) std::printf("       %s\n", text.c_str());
  expect("a forgotten branch is found at each element", findings.size() == 2);

  auto kink = [](const Inputs& v) { return sum(relu(v[0])); };
  findings = gradcheck(kink, {tensor({0, 1}, DType::f64)});
  for (const auto& text : findings) std::printf("       %s\n", text.c_str());
  expect("relu at 0 has no slope, and is found", findings.size() == 1);
  expect_error("16 bits are refused", "no input is f64",
               [&] { gradcheck(kink, {tensor({1}, DType::f16)}); });
}
