// Which dtype each op makes of which operands: PyTorch's table, but for the rows below "here". All
// that has no integer kernel makes f32 of integers, where PyTorch refuses some; masked_fill widens
// for a number that x does not hold, where PyTorch rounds it.
#include <doctest/doctest.h>

#include <functional>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/core/promotion.h"
#include "minim/ops/composite.h"

using namespace minim;

namespace {

using F = std::function<Tensor(const Tensor&)>;
using Values = std::vector<double>;

/// The name of the result's dtype, or "error".
std::string made_by(const F& f, DType d) {
  try {
    return name_of(f(ones({2, 2}, d)).dtype());
  } catch (const Error&) {
    return "error";
  }
}

struct Row {
  const char* name;
  F f;
  const char *boolean, *integer, *floating;  ///< dtype of the result; "same" is the operand's
};

const Tensor kChoice = tensor({1, 0, 0, 1}, DType::boolean).reshape({2, 2});

}  // namespace

TEST_CASE("the result's dtype of every kind of op on bool, integers and floats is the table's") {
  const Row rows[] = {
      {"add", [](const Tensor& x) { return x + x; }, "bool", "same", "same"},
      {"mul", [](const Tensor& x) { return x * x; }, "bool", "same", "same"},
      {"maximum", [](const Tensor& x) { return maximum(x, x); }, "bool", "same", "same"},
      {"sub", [](const Tensor& x) { return x - x; }, "error", "same", "same"},
      {"neg", [](const Tensor& x) { return -x; }, "error", "same", "same"},
      {"div", [](const Tensor& x) { return x / x; }, "f32", "f32", "same"},
      {"x + true", [](const Tensor& x) { return x + true; }, "bool", "same", "same"},
      {"x + 1", [](const Tensor& x) { return x + 1; }, "i64", "same", "same"},
      {"x + 1.0", [](const Tensor& x) { return x + 1.0; }, "f32", "f32", "same"},
      {"exp", [](const Tensor& x) { return exp(x); }, "f32", "f32", "same"},
      {"log", [](const Tensor& x) { return log(x); }, "f32", "f32", "same"},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, "f32", "f32", "same"},
      {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, "f32", "f32", "same"},
      {"tanh", [](const Tensor& x) { return tanh(x); }, "f32", "f32", "same"},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, "f32", "f32", "same"},
      {"pow 0.5", [](const Tensor& x) { return pow(x, 0.5); }, "f32", "f32", "same"},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x); }, "f32", "f32", "same"},
      {"sum", [](const Tensor& x) { return sum(x); }, "i64", "i64", "same"},
      {"prod", [](const Tensor& x) { return prod(x); }, "i64", "i64", "same"},
      {"cumsum", [](const Tensor& x) { return cumsum(x); }, "i64", "i64", "same"},
      {"mean", [](const Tensor& x) { return mean(x); }, "error", "error", "same"},
      {"max", [](const Tensor& x) { return max(x); }, "bool", "same", "same"},
      {"argmax", [](const Tensor& x) { return argmax(x); }, "i64", "i64", "i64"},
      {"clamp",
       [](const Tensor& x) {
         return clamp(x, {0, 1});
       },
       "f32", "f32", "same"},
      {"x < x", [](const Tensor& x) { return x < x; }, "bool", "bool", "bool"},
      {"any", [](const Tensor& x) { return any(x); }, "bool", "bool", "bool"},
      {"all", [](const Tensor& x) { return all(x); }, "bool", "bool", "bool"},
      {"where", [](const Tensor& x) { return where(kChoice, x, 1.0); }, "f32", "f32", "same"},
      {"cat",
       [](const Tensor& x) {
         return cat({x, x});
       },
       "bool", "same", "same"},
      // here
      {"var", [](const Tensor& x) { return var(x); }, "f32", "f32", "same"},
      {"std", [](const Tensor& x) { return minim::std(x); }, "f32", "f32", "same"},
      {"norm", [](const Tensor& x) { return norm(x); }, "f32", "f32", "same"},
      {"softmax", [](const Tensor& x) { return softmax(x); }, "f32", "f32", "same"},
      {"gelu", [](const Tensor& x) { return gelu(x); }, "f32", "f32", "same"},
      {"masked_fill", [](const Tensor& x) { return masked_fill(x, kChoice, 3.5); }, "f32", "f32",
       "same"},
      {"square", [](const Tensor& x) { return square(x); }, "bool", "same", "same"},
      {"pow 2", [](const Tensor& x) { return pow(x, 2); }, "f32", "f32", "same"},
  };
  for (const Row& row : rows)
    for (DType d : {DType::boolean, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16,
                    DType::f32, DType::f64}) {
      const std::string want = d == DType::boolean ? row.boolean
                               : is_floating(d)    ? row.floating
                                                   : row.integer;
      CAPTURE(std::string(row.name));
      CAPTURE(std::string(name_of(d)));
      CHECK(made_by(row.f, d) == (want == "same" ? name_of(d) : want));
    }
}

TEST_CASE("result_type of every three operands is the published rule, folded bucket by bucket") {
  const auto combine = [](DType high, DType low) {
    const bool floats = is_floating(high);
    if (floats) return high;
    return high == DType::boolean || is_floating(low) ? promote_types(high, low) : high;
  };
  const auto rule = [&](std::array<Typed, 3> operands) {
    std::optional<DType> result;
    for (Rank rank : {Rank::scalar, Rank::zero_dim, Rank::dimensioned}) {
      std::optional<DType> bucket;
      for (Typed t : operands) {
        if (t.rank != rank) continue;
        if (rank == Rank::scalar && is_floating(t.dtype)) t.dtype = DType::f32;
        bucket = bucket ? promote_types(*bucket, t.dtype) : t.dtype;
      }
      if (bucket) result = result ? combine(*bucket, *result) : *bucket;
    }
    return *result;
  };
  int wrong = 0;
  std::vector<Typed> all;
  for (size_t d = 0; d < kDTypes; ++d)
    for (Rank rank : {Rank::dimensioned, Rank::zero_dim, Rank::scalar})
      all.push_back({DType(d), rank});
  for (Typed a : all)
    for (Typed b : all)
      for (Typed c : all) wrong += result_type(std::array{a, b, c}) != rule({a, b, c});
  CHECK(wrong == 0);
}

TEST_CASE("an op of two dtypes is the op of both converted to the promoted one") {
  const DType dtypes[] = {DType::boolean, DType::u8,   DType::i32, DType::i64,
                          DType::f16,     DType::bf16, DType::f32, DType::f64};
  const Values u{1, 0, 3, 2, 5, 7}, v{2, 1, 3, 0, 1, 4};
  for (DType a : dtypes)
    for (DType b : dtypes) {
      const DType to = promote_types(a, b);
      const Tensor x = tensor(u, {2, 3}, a), y = tensor(v, {3, 2}, b).transpose(0, 1);
      const Tensor wide_x = x.to(to), wide_y = y.to(to);
      for (auto f : {+[](const Tensor&p, const Tensor&q) { return p + q; },
                     +[](const Tensor&p, const Tensor&q) { return p * q; },
                     +[](const Tensor&p, const Tensor&q) { return maximum(p, q); },
                     +[](const Tensor&p, const Tensor&q) { return p < q; },
                     +[](const Tensor&p, const Tensor&q) {
                       return cat({p, q});
                     }}) {
        const Tensor got = f(x, y), want = f(wide_x, wide_y);
        CHECK(got.dtype() == want.dtype());
        CHECK(got.to_vector() == want.to_vector());
      }
      CHECK(x.dtype() == a);
    }
}

TEST_CASE("numbers: u8 wraps, inf stays in its dtype, and 16-bit sums pass 256 and 2048") {
  CHECK((tensor({250, 5}, DType::u8) + 10).to_vector() == Values{4, 15});
  CHECK((tensor({5}, DType::u8) + 5.5).dtype() == DType::f32);
  CHECK((tensor({5}, DType::u8) + full({}, 5.5, DType::f64)).dtype() == DType::f64);
  CHECK((tensor({33000}, DType::f16) + tensor({33000}, DType::f16)).item() == INFINITY);
  CHECK(sum(ones({1000}, DType::bf16)).item() == 1000);
  CHECK(sum(ones({4096}, DType::f16)).item() == 4096);
  CHECK(max(cumsum(ones({1000}, DType::bf16))).item() == 1000);
}

TEST_CASE("slopes at corners are PyTorch's: relu, abs, clamp, sqrt, prod and ties") {
  const auto slope = [](const F& f, Values at) {
    const Tensor x = tensor(at, {Index(at.size())}).set_requires_grad();
    const Tensor y = f(x);
    y.backward(ones(y.shape()));
    return x.grad().to_vector();
  };
  CHECK(slope([](auto& x) { return relu(x); }, {0}) == Values{0});
  CHECK(slope([](auto& y) { return pow(zeros({3}), y); }, {2, 0, -1}) == Values{0, 0, -INFINITY});
  CHECK(slope([](auto& x) { return relu(x); }, {NAN}) == Values{1});  // the NaN is passed on too
  CHECK(slope([](auto& x) { return abs(x); }, {0}) == Values{0});
  CHECK(slope([](auto& x) { return sqrt(x); }, {0}) == Values{INFINITY});
  CHECK(slope([](auto& x) { return clamp(x, {0, 1}); }, {0, 0.5, 1, 2}) == Values{0, 1, 0, 0});
  CHECK(slope([](auto& x) { return norm(x); }, {0, 0}) == Values{0, 0});
  CHECK(slope([](auto& x) { return prod(x); }, {0, 2, 3}) == Values{6, 0, 0});
  CHECK(slope([](auto& x) { return max(x, {.axes = {0}}); }, {4, 4, 1}) == Values{1, 0, 0});
  CHECK(slope([](auto& x) { return maximum(x, ones({1})); }, {1}) == Values{0.5});
  CHECK(slope([](auto& x) { return where(x > 0.0, log(x), x * 0.0); }, {0}) == Values{0});
}

TEST_CASE("a cotangent is taken in the dtype of the result, and a gradient in that of its leaf") {
  for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = ones({2}).set_requires_grad();
    (x * 2.0).backward(full({2}, 0.5, d));
    CHECK(x.grad().dtype() == DType::f32);
    CHECK(x.grad().to_vector() == Values{1, 1});
  }
}
