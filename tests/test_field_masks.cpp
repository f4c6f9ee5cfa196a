// What goes wrong with masks in the field. Names begin with the case's id (docs/field-cases.md).
#include <set>

#include "minim/amp/autocast.h"
#include "minim/core/warn.h"
#include "minim/testing/op_trial.h"
#include "minim/tests/field_samples.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("M2: masks are taken together as booleans, where two sentinels would add up to -inf") {
  CHECK(tensor({-65504}, DType::f16).item() == -65504);
  CHECK((tensor({-65504}, DType::f16) + tensor({-16}, DType::f16)).item() == -kInf);
  const Tensor a = tensor({1, 1, 0, 1, 1, 1, 0, 1, 1}, DType::boolean).reshape({3, 3});
  const Tensor causal = tensor({1, 0, 0, 1, 1, 0, 1, 1, 1}, DType::boolean).reshape({3, 3});
  for (AttentionKernel kernel : {AttentionKernel::reference, AttentionKernel::fused}) {
    const Tensor q = some({1, 3, 4}, DType::f16).set_requires_grad();
    const Tensor both =
        scaled_dot_product_attention(q, q, q, a, {.causal = true, .kernel = kernel});
    const Tensor once = scaled_dot_product_attention(q, q, q, a * causal, {.kernel = kernel});
    CHECK(both.to_vector() == once.to_vector());
    both.backward(ones(both.shape(), DType::f16));
    CHECK(all_finite(q.grad()));
  }
}

TEST_CASE("M3: in f16 and both kernels a row that sees no key is 0 with gradient 0") {
  const Tensor mask = tensor({1, 1, 0, 0}, DType::boolean).reshape({2, 2});
  for (AttentionKernel kernel : {AttentionKernel::reference, AttentionKernel::fused})
    for (DType d : {DType::f32, DType::f16, DType::bf16}) {
      const Tensor q = some({1, 2, 4}, d).set_requires_grad();
      const Tensor y = scaled_dot_product_attention(q, some({1, 2, 4}, d), some({1, 2, 4}, d), mask,
                                                    {.kernel = kernel});
      y.backward(ones(y.shape(), d));
      CHECK(y.select(1, 1).to_vector() == Values(4, 0));
      CHECK(q.grad().select(1, 1).to_vector() == Values(4, 0));
      CHECK(all_finite(y));
      CHECK(all_finite(q.grad()));
    }
}

TEST_CASE("M3: no path of a mask makes a NaN of a row that sees nothing, nor of its gradients") {
  const Tensor nothing = zeros({3, 4}, DType::boolean), all = full({3, 4}, 1, DType::boolean);
  WarningScope quiet([](const std::string&) {});
  for (DType d : {DType::f32, DType::f16, DType::bf16})
    for (bool autocast : {false, true}) {
      amp::Autocast casts(autocast ? DType::f16 : DType::f32);
      auto test = [&](const char* path, auto f) {
        CAPTURE(path);
        const Tensor x = some({3, 4}, d).set_requires_grad();
        const Tensor y = f(x);
        y.backward(ones(y.shape(), y.dtype()));
        CHECK(all_finite(x.grad()));
        return y;
      };
      auto hidden = [&](const Tensor& x) { return masked_fill(x, all, -kInf); };
      CHECK(all_finite(test("softmax", [&](auto& x) { return softmax(hidden(x)); })));
      test("log_softmax", [&](auto& x) { return log_softmax(hidden(x)); });
      test("logsumexp", [&](auto& x) { return logsumexp(hidden(x), {.axes = {1}}); });
      CHECK(all_finite(test("mask and where",
                            [&](auto& x) { return where(nothing, softmax(hidden(x)), 0.0); })));
      CHECK(all_finite(test("cross_entropy", [&](auto& x) {
        return cross_entropy(x, full({3}, -100, DType::i64));
      })));
      for (AttentionKernel kernel : {AttentionKernel::reference, AttentionKernel::fused})
        for (bool causal : {false, true})
          for (double dropout : {0.0, 0.5})
            for (Index heads : {1, 2}) {  // of keys and values; queries have two
              const Tensor q = some({1, 2, 3, 4}, d).set_requires_grad(),
                           k = some({1, heads, 5, 4}, d).set_requires_grad(),
                           v = some({1, heads, 5, 4}, d).set_requires_grad();
              Tensor mask = full({3, 5}, 1, DType::boolean);
              mask.select(0, 1).fill_(0);
              const Tensor y = scaled_dot_product_attention(
                  q, k, v, mask, {.causal = causal, .dropout = dropout, .kernel = kernel});
              y.backward(ones(y.shape(), y.dtype()));
              CHECK(y.select(2, 1).to_vector() == Values(8, 0));
              CHECK(q.grad().select(2, 1).to_vector() == Values(8, 0));
              for (const Tensor& t : {y, q.grad(), k.grad(), v.grad()}) CHECK(all_finite(t));
              for (const Tensor& t : {k, v}) t.set_grad({});
              const Tensor none = scaled_dot_product_attention(
                  q, k, v, zeros({3, 5}, DType::boolean), {.causal = causal, .kernel = kernel});
              none.backward(ones(none.shape(), none.dtype()));
              CHECK(none.to_vector() == Values(24, 0));
              for (const Tensor& t : {k.grad(), v.grad()})
                CHECK(t.to_vector() == Values(size_t(t.numel()), 0));
            }
    }
}

TEST_CASE("N1: where only zeros arrive only zeros leave, of every op but matrix products") {
  // Whose sums have 0 times what the other operand holds, as everywhere.
  const std::set<std::string> products{"matmul", "linear", "conv2d",
                                       "scaled_dot_product_attention"};
  WarningScope quiet([](const std::string&) {});
  for (const OpRow* row : all_ops()) {
    bool clean = true;
    for (Trial trial : row->differentiable ? trials(*row) : std::vector<Trial>())
      for (double v : {kNaN, kInf, -kInf, 0.0})
        for (DType d : {DType::f32, DType::f16, DType::bf16}) {
          for (size_t k = 0; k < trial.values.size(); ++k)
            if (row->operands[k].accepts == Accepts::floating)
              trial.values[k].assign(trial.values[k].size(), v);
          const std::vector<Tensor> xs = trial.operands(d, true);
          for (const Tensor& y : call(*row, xs, trial.example.attrs))
            if (y.requires_grad()) y.backward(zeros(y.shape(), y.dtype()), true);
          for (const Tensor& x : xs)
            if (x.defined() && x.grad().defined())
              for (double g : x.grad().to_vector()) clean = clean && g == 0;
        }
    CAPTURE(std::string(row->name));
    CHECK(clean == !products.count(row->name));
  }
}
