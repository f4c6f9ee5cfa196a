// What goes wrong in mixed precision in the field and is not about one op: norms, constants,
// data, accumulation and messages. Names begin with the case's id (docs/field-cases.md).
#include <iostream>

#include "minim/amp/autocast.h"
#include "minim/autograd/anomaly.h"
#include "minim/core/warn.h"
#include "minim/models/conv_layers.h"
#include "minim/models/gpt.h"
#include "minim/models/language_model.h"
#include "minim/models/layers.h"
#include "minim/ops/composite.h"
#include "minim/optim/clip.h"
#include "minim/optim/muon.h"
#include "minim/testing/op_checks.h"
#include "minim/tests/field_samples.h"

using namespace minim;
using namespace minim::test;
using doctest::Contains;

namespace {

Tensor alternating(const Shape& shape, double size) {
  Values v(size_t(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = i % 2 ? -size : size;
  return tensor(v, shape, DType::f16);
}

}  // namespace

TEST_CASE("R1: no norm squares in f16: of +-512 each is exact") {
  const Tensor x = alternating({2, 64}, 512), one = alternating({2, 64}, 1);
  CHECK(layer_norm(x).to_vector() == one.to_vector());
  CHECK(rms_norm(x).to_vector() == one.to_vector());
  CHECK(group_norm(x, {}, {}, {.num_groups = 1}).to_vector() == one.to_vector());
  CHECK(batch_norm(x.reshape({128, 1})).to_vector() == one.to_vector());
  CHECK(normalize(x).to_vector() == alternating({2, 64}, 0.125).to_vector());
  CHECK(norm(x, {.axes = {1}}).to_vector() == Values{4096, 4096});
  CHECK(minim::std(x, {.axes = {1}, .correction = 0}).to_vector() == Values{512, 512});
  CHECK(cosine_similarity(x, x).to_vector() == Values{1, 1});
  CHECK(var(x, {.axes = {1}, .correction = 0}).to_vector() == Values{kInf, kInf});  // 2^18
  for (amp::Policy policy : {amp::Policy::torch, amp::Policy::lean}) {
    amp::Autocast casts(DType::f16, policy);
    models::BatchNorm2d batch_norm(2);
    models::GroupNorm group_norm(1, 2);
    const Tensor image = x.reshape({2, 2, 4, 8}), unit = one.reshape({2, 2, 4, 8});
    CHECK(models::LayerNorm(64)(x).to_vector() == one.to_vector());
    CHECK(models::RMSNorm(64)(x).to_vector() == one.to_vector());
    CHECK(batch_norm(image).to_vector() == unit.to_vector());
    CHECK(group_norm(image).to_vector() == unit.to_vector());
    CHECK(batch_norm.running_var.to_vector()[0] > 26000);  // 0.9 + 0.1 * 2^18, beyond f16's squares
  }
}

TEST_CASE("C1: no eps of a norm is lost in f16: what has no variance stays finite") {
  const Tensor zero = zeros({2, 4}, DType::f16);
  auto checks = [&](const Tensor& y, const Tensor& x) {
    y.backward(ones(y.shape(), y.dtype()));
    CHECK(all_finite(y));
    CHECK(all_finite(x.grad()));
  };
  auto leaf = [&] { return zero.clone().set_requires_grad(); };
  auto test = [&](auto f) {
    const Tensor x = leaf();
    checks(f(x), x);
  };
  test([](const Tensor& x) { return layer_norm(x, {}, {}, {.eps = 1e-8}); });
  test([](const Tensor& x) { return rms_norm(x, {}, {.eps = 1e-8}); });
  test([](const Tensor& x) { return group_norm(x, {}, {}, {.num_groups = 2, .eps = 1e-8}); });
  test([](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, {.eps = 1e-8}); });
  test([](const Tensor& x) { return normalize(x, {.eps = 1e-12}); });
  test([&](const Tensor& x) { return cosine_similarity(x, zero, {.eps = 1e-8}); });
  test([](const Tensor& x) {  // eps of 0, which f16 makes of the others
    return layer_norm(x + tensor({1, 2, 3, 4}, DType::f16), {}, {}, {.eps = 0});
  });
}

TEST_CASE("C1: no eps of Adam or clipping or Muon is lost where gradients and moments are 0" *
          doctest::test_suite("host")) {
  for (DType d : {DType::f32, DType::f16, DType::bf16})
    for (const optim::Rule* rule : {&optim::kAdam, &optim::kAdamW, &optim::kMuon})
      for (bool fused : {false, true}) {
        const Tensor p = tensor({1, -2, .5, 4}, d).reshape({2, 2}).set_requires_grad();
        optim::Optimizer opt(
            *rule, {{{p}}},
            {.lr = .1, .weight_decay = 0, .masters = d != DType::f32, .fused = fused});
        p.set_grad(zeros({2, 2}));
        CHECK(optim::clip_grad_norm(opt.parameters(), 0) == 0);
        CHECK(opt.step().stepped);
        CHECK(p.to_vector() == Values{1, -2, .5, 4});
      }
  for (DType d : {DType::f16, DType::bf16})
    CHECK(optim::orthogonalized(zeros({2, 3}, d)).to_vector() == Values(6, 0));
}

TEST_CASE("R6: a batch with an inf leaves the running statistics and the weights as they were") {
  models::BatchNorm2d bn(1);
  amp::GradScaler scaler;
  optim::SGD opt(bn.parameters(), {.lr = 0.1});
  auto step = [&](double value) {
    opt.zero_grad();
    Tensor x = some({2, 1, 2, 2});
    x.select(0, 0).fill_(value);
    scaler.scale(sum(bn(x) * some({2, 1, 2, 2}))).backward();
    const bool stepped = scaler.step(opt).stepped;
    scaler.update();
    return stepped;
  };
  CHECK(step(1));
  std::vector<Values> before;
  for (const auto& [name, t] : bn.state_dict()) before.push_back(t.to_vector());
  for (double bad : {kInf, kNaN}) CHECK_FALSE(step(bad));
  size_t i = 0;
  for (const auto& [name, t] : bn.state_dict()) {
    CAPTURE(name);
    CHECK(t.to_vector() == before[i++]);
  }
  bn.eval();
  CHECK(all_finite(bn(some({1, 1, 2, 2}))));
}

TEST_CASE("R6: a step that the scale's overflow skips moves the running statistics of its batch") {
  models::BatchNorm2d bn(1);
  amp::GradScaler scaler;
  optim::SGD opt(bn.parameters(), {.lr = 0.1});
  const Tensor x = some({2, 1, 2, 2}), mean = zeros({1}), var = ones({1});
  scaler.scale(sum(bn(x) * 1e36)).backward();
  const auto result = scaler.step(opt);
  CHECK(result.found_inf);
  CHECK_FALSE(result.stepped);
  batch_norm_update(x, mean, var);
  CHECK(bn.running_mean.to_vector() == mean.to_vector());
  CHECK(bn.running_var.to_vector() == var.to_vector());
  CHECK(mean.item() != 0);
  CHECK(bn.weight.to_vector() == Values{1});
}

TEST_CASE("R8: an activation beyond f16 is told with op, module and what fp32 would hold") {
  models::Linear fc(2, 1, false);
  struct Root : models::Module {
    explicit Root(models::Linear& fc) : fc(fc) { child("fc", fc); }
    Tensor forward(const Tensor& x) const override { return fc(x); }
    models::Linear& fc;
  } root(fc);
  {
    NoGrad guard;
    fc.weight.copy_(tensor({256, 26.65}));
  }
  autograd::Anomaly on(3);
  amp::Autocast casts(DType::f16);
  const std::string text = error_of([&] { root(tensor({256, 26.65}).reshape({1, 2})); });
  says(text, "[linear] Inf in result 0, in module fc, at step 3");
  says(text, "in fp32 it would be f32(1, 1): min 66246.6, max 66246.6");
}

TEST_CASE("L7: rope tells position 256 from 257 in bf16, whose integers end at 256") {
  const Tensor x = tensor({1, 0}, DType::bf16).reshape({1, 2});
  amp::Autocast casts(DType::bf16);
  auto cosine = [&](Index at) { return rope(x, {.offset = at}).to_vector()[0]; };
  CHECK(std::abs(cosine(257) - cosine(256)) == doctest::Approx(0.859).epsilon(0.01));
  CHECK(cosine(100001) == double(float(bf16(std::cos(100001.0)))));
}

TEST_CASE("N1: of every op with an infinite slope what where leaves out has gradient 0") {
  using F = Tensor (*)(const Tensor&);
  struct Case {
    const char* name;
    double at;
    F f;
  };
  const Case cases[] = {
      {"sqrt", 0, [](const Tensor& x) { return sqrt(x); }},
      {"rsqrt", 0, [](const Tensor& x) { return rsqrt(x); }},
      {"log", 0, [](const Tensor& x) { return log(x); }},
      {"log1p", -1, [](const Tensor& x) { return log1p(x); }},
      {"pow", 0, [](const Tensor& x) { return pow(x, 0.5); }},
      {"negative pow", 0, [](const Tensor& x) { return pow(x, -1.0); }},
      {"div", 0, [](const Tensor& x) { return 1.0 / x; }},
      {"reciprocal", 0, [](const Tensor& x) { return reciprocal(x); }},
      {"div of itself", 0, [](const Tensor& x) { return x / x; }},
      {"x log x", 0, [](const Tensor& x) { return x * log(x); }},
      {"bce", 0,
       [](const Tensor& x) { return bce(x, ones(x.shape()), {.reduction = Reduction::none}); }},
      {"norm", 0, [](const Tensor& x) { return norm(x.unsqueeze(1), {.axes = {1}, .p = 0.5}); }},
      {"pow of 0", 0, [](const Tensor& x) { return pow(0.0, x); }},
      {"negative base", -1, [](const Tensor& x) { return pow(x, 0.5); }},
      {"log of negative", -1, [](const Tensor& x) { return log(x); }},
      {"bce at 1", 1,
       [](const Tensor& x) { return bce(x, zeros(x.shape()), {.reduction = Reduction::none}); }},
      {"kl_div of the target", 0,
       [](const Tensor& x) { return kl_div(zeros(x.shape()), x, {.reduction = Reduction::none}); }},
      {"normalize", 0,
       [](const Tensor& x) { return normalize(x.unsqueeze(1), {.eps = 0}).squeeze(1); }},
      {"std", 0,
       [](const Tensor& x) {
         return minim::std(stack({x, x * 2.0}, 1), {.axes = {1}});
       }},
      {"logsumexp", -kInf,
       [](const Tensor& x) { return logsumexp(x.unsqueeze(1), {.axes = {1}}); }},
      {"exp", 8192, [](const Tensor& x) { return exp(x); }},
      {"softmax", kInf,
       [](const Tensor& x) {
         return softmax(stack({x, -x}, 1), {1}).select(1, 0);
       }},
      {"cross_entropy", kInf,
       [](const Tensor& x) {
         return cross_entropy(stack({x, -x}, 1), zeros(x.shape(), DType::i64),
                              {.reduction = Reduction::none});
       }},
  };
  for (const Case& c : cases)
    for (DType d : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      CAPTURE(std::string(c.name));
      CAPTURE(std::string(name_of(d)));
      auto gradients = [&](auto choose) {
        const Tensor x = tensor({c.at, 0.5}, d).set_requires_grad();
        choose(x, x == c.at).backward(ones({2}, d));
        return x.grad().to_vector();
      };
      const Tensor plain = tensor({0.5}, d).set_requires_grad();
      c.f(plain).backward(ones({1}, d));
      const Values want{0, plain.grad().item()};
      CHECK(gradients([&](auto& x, auto bad) { return where(bad, 0.0, c.f(x)); }) == want);
      CHECK(gradients([&](auto& x, auto bad) { return masked_fill(c.f(x), bad, 0.0); }) == want);
    }
}

TEST_CASE("D1: targets that are all ignored are told once, by op, and by each call to a handler") {
  const Tensor x = zeros({2, 3}), ignored = full({2}, -100, DType::i64);
  std::vector<std::string> heard;
  {
    WarningScope scope([&](const std::string& text) { heard.push_back(text); });
    cross_entropy(x, ignored);
    nll_loss(x, ignored, {.reduction = Reduction::none});
    cross_entropy(x, tensor({-100, 1}, DType::i64));
    cross_entropy(zeros({0, 3}), zeros({0}, DType::i64));
  }
  REQUIRE(heard.size() == 2);
  CHECK(heard[0] ==
        "[cross_entropy] all 2 targets are ignore_index: the loss and its gradient are 0");
  says(heard[1], "[nll_loss] all 2 targets");
  std::ostringstream text;
  std::streambuf* before = std::cerr.rdbuf(text.rdbuf());
  for (int i = 0; i < 3; ++i) cross_entropy(x, ignored);
  std::cerr.rdbuf(before);
  CHECK(text.str() == "minim: warning: " + heard[0] + "\n");
}

TEST_CASE("D6: a NaN in the inputs is put down to the data, and the scale is not lowered for it") {
  models::Linear fc(5, 1);
  optim::SGD opt(fc.parameters(), {.lr = 0.1});
  amp::GradScaler scaler;
  for (int batch = 0; batch < 4; ++batch) {
    Tensor x = some({3, 5});
    if (batch == 3) x.slice(0, 2, 3).slice(1, 4, 5).fill_(kNaN);
    auto loss = [&] {
      amp::Autocast casts(DType::f16);
      return mse(fc(x), zeros({3, 1}));
    };
    opt.zero_grad();
    scaler.scale(loss()).backward();
    const Values before = fc.weight.to_vector();
    const amp::StepResult r = scaler.step(opt);
    scaler.update();
    CHECK(r.stepped == (batch != 3));
    CHECK(scaler.scale() == 65536);
    if (r.stepped) continue;
    CHECK(fc.weight.to_vector() == before);
    CHECK(r.scale_after == 65536);
    CHECK(std::string(amp::cause_of(r.kind, r.scale_before)) == "the model or the data");
    autograd::Anomaly on(batch);
    says(error_of(loss), "operand 0 'x': f32(3, 5)");
    says(error_of(loss), "1 of 15 not finite");
  }
}

TEST_CASE("S6: a module that was converted to f16 is said to have been so") {
  struct Root : models::Module {
    models::Linear fc{4, 4};
    Root() { child("fc", fc), name_parameters(); }
  } root, whole;
  root.fc.to(DType::f16);
  says(error_of([&] { optim::AdamW{root.parameters()}; }),
       "'fc.weight' is stored in f16 (by Module::to(f16) of 'fc')");
  whole.to(DType::f16);
  says(error_of([&] { optim::AdamW{whole.parameters()}; }),
       "'fc.weight' is stored in f16 (by Module::to(f16))");
}

TEST_CASE("T2: every op of the table runs in f32 and f16 and bf16 and rounds once" *
          doctest::test_suite("host")) {
  const OpRow* rows[] = {
#define OP(name, ...) &Op::name,
#include "minim/ops/ops.def"
#undef OP
  };
  for (const OpRow* row : rows)
    for (const std::string& finding : check_dtypes(*row)) FAIL_CHECK(finding);
}

TEST_CASE("E3: micro-batches weigh by their tokens: 1 of loss 4 and 3 of loss 1 make 1.75") {
  auto scores = [](Index n, double loss) { return full({n, 2}, -loss).set_requires_grad(); };
  const Tensor a = scores(1, 4), b = scores(3, 1);
  const double means =
      (nll_loss(a, zeros({1}, DType::i64)).item() + nll_loss(b, zeros({3}, DType::i64)).item()) / 2;
  CHECK(means == 2.5);
  double total = 0;
  for (const Tensor& x : {a, b}) {
    const Tensor sum =
        nll_loss(x, zeros({x.size(0)}, DType::i64), {.reduction = Reduction::sum}) / 4.0;
    total += sum.item();
    sum.backward();
  }
  CHECK(total == 1.75);
  for (const Tensor& x : {a, b}) CHECK(x.grad().to_vector()[0] == -0.25);
  // The same with the counts that the loss itself gives, some targets being ignored.
  const Tensor logits = some({6, 5}).set_requires_grad();
  const Tensor target = tensor({0, -100, -100, 3, 1, 4}, DType::i64);
  cross_entropy(logits, target).backward();
  const Values whole = logits.grad().to_vector();
  logits.set_grad({});
  for (Index at : {0, 3}) {
    const CountedLoss part =
        cross_entropy_counted(logits.slice(0, at, at + 3), target.slice(0, at, at + 3));
    (part.loss * (part.n_valid.item() / 4)).backward();
  }
  check_near(logits.grad().to_vector(), whole, 1e-7);
}

TEST_CASE("E4: four micro-batches of 1 have the gradients of one batch of 4") {
  manual_seed(1);
  models::GPT model({.vocab = 7, .block = 6, .layers = 2, .heads = 2, .embd = 8});
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(i * i % 7);
  const std::vector<int64_t> starts{0, 9, 17, 30};
  auto backward = [&](std::span<const int64_t> part) {
    const models::Batch batch = models::make_batch(tokens, part, 6);
    (cross_entropy(model(batch.inputs), batch.targets) * (double(part.size()) / 4)).backward();
  };
  backward(starts);
  std::vector<Values> whole;
  double largest = 0;
  for (const Tensor& p : model.parameters()) {
    whole.push_back(p.grad().to_vector());
    for (double g : whole.back()) largest = std::max(largest, std::abs(g));
    p.set_grad({});
  }
  for (size_t i = 0; i < 4; ++i) backward(std::span(starts).subspan(i, 1));
  for (size_t k = 0; k < whole.size(); ++k) {
    const Values parts = model.parameters()[k].grad().to_vector();
    for (size_t i = 0; i < parts.size(); ++i)
      CHECK(std::abs(parts[i] - whole[k][i]) <= 1e-6 * largest);
  }
}

TEST_CASE("E9: under a live scale a NaN weight is told with op and module and step") {
  models::GPT model({.vocab = 5, .block = 4, .layers = 1, .heads = 1, .embd = 4});
  for (const auto& [name, p] : model.named_parameters())
    if (name == "blocks.0.attn.qkv.weight") {
      NoGrad guard;
      Tensor(p).fill_(kNaN);
    }
  amp::GradScaler scaler;
  autograd::Anomaly on(12);
  amp::Autocast casts(DType::f16);
  const Tensor tokens = tensor({0, 1, 2}, DType::i64).reshape({1, 3});
  const std::string text = error_of([&] { scaler.scale(sum(model(tokens))).backward(); });
  says(text, "[to] NaN in result 0, in module blocks.0.attn.qkv");
  says(text, "at step 12");
}
