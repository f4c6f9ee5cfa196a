#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/grad_scaler.h"
#include "minim/autograd/anomaly.h"
#include "minim/models/gpt.h"
#include "minim/ops/call.h"
#include "minim/ops/functional.h"

using namespace minim;
using doctest::Contains;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor leaf(std::initializer_list<double> values, DType d = DType::f32) {
  return tensor(values, d).set_requires_grad();
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("anomaly mode names op and step and operands at the first NaN in forward") {
  const Tensor x = tensor({4, -1, 2}), y = tensor({1, 1, NAN});
  CHECK_NOTHROW(sqrt(x));
  autograd::Anomaly on(7);
  CHECK(message_of([&] { sqrt(x * 2.0); }) ==
        "[sqrt] NaN in result 0, at step 7\n"
        "  it is f32(3): min 2, max 2.82843, mean 2.41421, 1 of 3 not finite\n"
        "  operand 0 'x': f32(3): min -2, max 8, mean 3.33333, 0 of 3 not finite");
  on.set_step(8);
  const std::string text = message_of([&] { x* y; });
  CHECK(text.starts_with("[mul] NaN in result 0, at step 8"));
  CHECK(text.find("operand 1 'y': f32(3): min 1, max 1, mean 1, 1 of 3 not finite") !=
        std::string::npos);
}

TEST_CASE("anomaly mode finds infinities in forward but lets masks pass") {
  autograd::Anomaly on;
  const Tensor big = tensor({60000, 1}, DType::f16);
  CHECK(message_of([&] { big + big; }).starts_with("[add] Inf in result 0\n"));
  CHECK(message_of([&] { log(tensor({0, 1})); }).starts_with("[log] Inf in result 0\n"));
  const Tensor mask = tensor({0, 1}) > 0.0, scores = tensor({1, 2});
  CHECK_NOTHROW(softmax(masked_fill(scores, mask, -kInf), {.dim = 0}));
  CHECK_NOTHROW(softmax(scores + tensor({0, -kInf}), {.dim = 0}));
  CHECK_THROWS_WITH_AS(scores + tensor({0, kInf}), Contains("[add] Inf"), Error);
}

TEST_CASE("anomaly mode names the operand whose gradient is not finite") {
  const Tensor x = leaf({4, 0});
  autograd::Anomaly on(3);
  const Tensor y = sqrt(x) * 5.0;
  const std::string text = message_of([&] { sum(y).backward(); });
  CHECK(text.starts_with("[sqrt backward] Inf in the gradient of operand 0 'x', at step 3\n"));
  CHECK(text.find("gradient of result 0: f32(2): min 5, max 5, mean 5, 0 of 2") !=
        std::string::npos);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("anomaly mode knows the module in forward and backward") {
  models::GPT model({.vocab = 5, .block = 4, .layers = 4, .heads = 1, .embd = 4});
  const Tensor tokens = tensor({0, 1, 2}, DType::i64).reshape({1, 3});
  autograd::Anomaly on;
  CHECK_NOTHROW(sum(model(tokens)).backward());
  for (const auto& [name, p] : model.named_parameters())
    if (name == "blocks.3.attn.qkv.weight") {
      NoGrad guard;
      Tensor(p).fill_(3e38);
    }
  CHECK_THROWS_WITH_AS(model(tokens), Contains("in module blocks.3.attn"), Error);

  struct Root : models::Module {
    struct Leaf : models::Module {
      Tensor forward(const Tensor& x) const override { return sqrt(x); }
    } inner;
    Root() { child("inner", inner); }
    Tensor forward(const Tensor& x) const override { return inner(x * 2.0) + 1.0; }
  } root;
  const Tensor x = leaf({0, 1});
  const Tensor y = root(x);
  CHECK_THROWS_WITH_AS(y.backward(ones({2})),
                       Contains("[sqrt backward] Inf in the gradient of operand 0 'x', in module "
                                "inner"),
                       Error);
}

TEST_CASE(
    "E9: what a live loss scale overflows is left to the scaler and a NaN of its own is not") {
  autograd::Anomaly on;
  const Tensor x = leaf({300, 1});
  amp::GradScaler scaler({.init_scale = 65536});
  const Tensor low = x.to(DType::f16);
  const Tensor loss = mean((low * 1.0 - 1.0).to(DType::f32) * 100.0);
  CHECK_NOTHROW(scaler.scale(loss).backward());  // 100 * 65536 / 2 is no f16
  CHECK_FALSE(std::isfinite(x.grad().to_vector()[0]));
  x.set_grad({});
  const Tensor steep = mean((low * 1.0).to(DType::f32) * 1e6);
  CHECK_THROWS_WITH_AS(steep.backward(), Contains("[to backward] Inf"), Error);  // no scale

  OpRow broken = Op::exp;  // finite in, NaN out
  broken.backward[0] = [](OpArgs& args) {
    fill_zero(args.grad_in[0]);
    *static_cast<float*>(args.grad_in[0].data) = NAN;
  };
  const Tensor z = leaf({1, 2}), operands[] = {z};
  CHECK_THROWS_WITH_AS(scaler.scale(sum(call(broken, operands, {})[0])).backward(),
                       Contains("[exp backward] NaN in the gradient of operand 0 'x', under loss "
                                "scale 65536"),
                       Error);
}

TEST_CASE("anomaly mode ends with its scope and passes on to the probe that was there") {
  struct Counter : Probe {
    int ops = 0;
    void after_op(const OpRow&, const OpArgs&, bool) override { ++ops; }
  } counter;
  ProbeScope counted(&counter);
  {
    autograd::Anomaly on;
    exp(tensor({1}));
  }
  CHECK_NOTHROW(sqrt(tensor({-1})));
  CHECK(counter.ops == 2);
}
