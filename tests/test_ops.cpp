// Every row of the table gets these tests, each under a name of its own; so does every row
// registered at run time.
#include <set>

#include "minim/ops/row.h"
#include "minim/testing/op_tests.h"

using namespace minim;
using namespace minim::test;

#define OP(name, ...) MINIM_OP_TESTS(name, Op::name)
#include "minim/ops/ops.def"
#undef OP

namespace {

/// x^2, right in everything.
struct Square : op::Unary<Square> {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return x * x;
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return 2 * x;
  }
};
struct SteepSquare : Square {
  template <class A>
  MINIM_HD static void vjp(A g, A, A x, A* d) {
    d[0] = g * A(1.01) * (2 * x);
  }
};
struct ForgetfulSquare : Square {
  static constexpr Spec spec{.operands = {{"x"}}};
};
struct GreedySquare : Square {
  static constexpr Spec spec{.operands = {{"x"}}, .saves = {.inputs = 0b1, .outputs = 0b1}};
};
struct CoarseSquare : Square {  // rounds to 16 bits before the end
  template <class A>
  MINIM_HD static A forward(A x) {
    if constexpr (std::is_same_v<A, float>) return float(bf16(x)) * x;
    return x * x;
  }
};
struct NarrowInverse : op::Unary<NarrowInverse> {  // its slope's divisor leaves the range
  static constexpr Spec spec{.operands = {{"x", Accepts::floating, Domain::off_zero}},
                             .saves = {.inputs = 0b1}};
  template <class A>
  MINIM_HD static A forward(A x) {
    return A(1) / x;
  }
  template <class A>
  MINIM_HD static A slope(A x, A) {
    return A(-1) / (x * x);
  }
};
struct NarrowMean : op::Structured {  // its sum leaves the range
  static void infer(OpArgs& args) { args.out[0].shape = {}; }
  static constexpr Spec spec{.operands = {{"x"}}, .differentiable = false, .infer = infer};
  static std::vector<Example> examples() { return op::broadcast_examples<NarrowMean>(); }
  static void forward(OpArgs& args) {
    sum_to(args.in[0], args.out[0]);
    float* y = static_cast<float*>(args.out[0].data);
    if (args.out[0].dtype == DType::f32) *y /= float(args.in[0].shape.numel());
    if (args.out[0].dtype == DType::f64)
      *static_cast<double*>(args.out[0].data) /= double(args.in[0].shape.numel());
  }
};
struct CancellingTail : op::Unary<CancellingTail> {  // 1 + tanh has no digits left far out
  static constexpr Spec spec{.operands = {{"x"}}, .differentiable = false};
  template <class A>
  MINIM_HD static A forward(A x) {
    return A(1) + math::tanh(x);
  }
};
/// The first element everywhere.
struct Mixture : op::Structured {
  static constexpr Spec spec{.operands = {{"x"}}, .differentiable = false};
  static std::vector<Example> examples() { return op::broadcast_examples<Mixture>(); }
  static void forward(OpArgs& args) {
    Arg first = args.in[0];
    for (int i = 0; i < first.shape.rank(); ++i) first.strides[i] = 0;
    copy(first, args.out[0]);
  }
};

template <class F>
constexpr OpRow row_of(const char* name) {
  return make_row<F>(name, Cast::keep, Cast::keep, 1, "for the tests of the harness");
}

}  // namespace

TEST_CASE("harness: a right row has no findings") {
  static constexpr OpRow row = row_of<Square>("right_square");
  expect_none(check_gradients(row));
  expect_none(check_saves(row));
}

TEST_CASE("harness: a slope one percent off is caught") {
  static constexpr OpRow row = row_of<SteepSquare>("steep_square");
  const Findings found = check_gradients(row);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0].starts_with("steep_square: d x[0] of shape "));
  CHECK(found[0].find(": backward says ") != std::string::npos);
  CHECK(found[0].find("(ratio 1.01)") != std::string::npos);
}

TEST_CASE("harness: reading an unsaved operand is caught") {
  static constexpr OpRow row = row_of<ForgetfulSquare>("forgetful_square");
  const Findings found = check_saves(row);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0] ==
        "forgetful_square: backward reads operand 0 (x), which it does not save: add bit 0 to "
        "Saves::inputs");
}

TEST_CASE("harness: saving what backward does not read is caught") {
  static constexpr OpRow row = row_of<GreedySquare>("greedy_square");
  CHECK_FALSE(check_saves(row).empty());
}

TEST_CASE("harness: rounding inside an op is caught") {
  static constexpr OpRow row = row_of<CoarseSquare>("coarse_square");
  CHECK_FALSE(check_dtypes(row).empty());
}

TEST_CASE("harness: an element that is taken from another place is caught") {
  static constexpr OpRow right = row_of<Square>("fuzzed_square"),
                         wrong = row_of<Mixture>("mixture");
  expect_none(check_shapes(right));
  CHECK(check_layouts(wrong).empty());  // for every layout alike
  const Findings found = check_shapes(wrong);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0].find("index by index: result 0[1] is ") != std::string::npos);
}

TEST_CASE("harness: an intermediate that leaves the range, and digits that cancel, are caught") {
  static constexpr OpRow right = row_of<Square>("wide_square"),
                         slope = row_of<NarrowInverse>("narrow_inverse"),
                         mean = row_of<NarrowMean>("narrow_mean"),
                         tail = row_of<CancellingTail>("cancelling_tail");
  expect_none(check_range(right));
  CHECK(check_dtypes(slope).empty());
  const Findings found = check_range(slope);
  REQUIRE_FALSE(found.empty());
  CHECK(found[0].find(" in f32: gradient of x[") != std::string::npos);
  CHECK_FALSE(check_range(mean).empty());
  const Findings digits = check_range(tail);
  REQUIRE_FALSE(digits.empty());
  CHECK(digits[0].starts_with("cancelling_tail of "));
}

TEST_CASE("harness: a row without a reason, or with a negative error, is caught") {
  OpRow row = row_of<Square>("silent_square");
  row.why = "";
  CHECK_FALSE(check_description(row).empty());
  row.why = "said";
  CHECK(check_description(row).empty());
  row.error = -1;
  CHECK_FALSE(check_description(row).empty());
}

TEST_CASE("harness: a row registered by a user program gets the same tests") {
  static constexpr OpRow row = row_of<Square>("users_square");
  register_op(row);
  CHECK(all_ops().back() == &row);
  CHECK_THROWS_WITH_AS(register_op(row), doctest::Contains("already"), Error);
  std::set<const OpRow*> built_in;
#define OP(name, ...) built_in.insert(&Op::name);
#include "minim/ops/ops.def"
#undef OP
  int others = 0;
  for (const OpRow* op : all_ops())
    if (!built_in.contains(op)) {
      expect_none(check_all(*op));
      ++others;
    }
  CHECK(others >= 1);
}

TEST_CASE("a row that lacks what every row needs cannot be registered") {
  OpRow row = row_of<Square>("unexplained_square");
  row.why = nullptr;
  CHECK_THROWS_WITH_AS(register_op(row), doctest::Contains("does not say why"), Error);
  row = row_of<Square>("one_way_square");
  row.backward[0] = nullptr;
  CHECK_THROWS_WITH_AS(register_op(row), doctest::Contains("lacks operands, a kernel"), Error);
}
