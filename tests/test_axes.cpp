// Axes of 0-dim tensors, and arithmetic on shapes that must not overflow.
#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <optional>

#include "minim/models/model_file.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using doctest::Contains;
using test::error_of;
using test::has;

namespace {

using Values = std::vector<double>;
constexpr Index kMost = std::numeric_limits<Index>::max(),
                kLeast = std::numeric_limits<Index>::min();

/// The attributes with that axis; none where the op has no axis.
template <class A>
std::optional<Attrs> on_axis(Index axis) {
  A attrs{};
  if constexpr (requires { attrs.dim = axis; })
    attrs.dim = axis;
  else if constexpr (requires { attrs.axis = axis; })
    attrs.axis = axis;
  else if constexpr (requires { attrs.axes = Dims{axis}; })
    attrs.axes = Dims{axis};
  else
    return {};
  return Attrs(attrs);
}

using OnAxis = std::optional<Attrs> (*)(Index);
/// Every row that has an axis.
std::map<const OpRow*, OnAxis> rows_with_axes() {
  const std::pair<const OpRow*, OnAxis> all[] = {
#define OP(name, Struct, ...) {&Op::name, on_axis<attrs_t<op::Struct>>},
#include "minim/ops/ops.def"
#undef OP
  };
  std::map<const OpRow*, OnAxis> rows;
  for (const auto& [row, on] : all)
    if (on(0)) rows[row] = on;
  return rows;
}

std::vector<Tensor> operands_of(const OpRow& row, const Shape& shape) {
  std::vector<Tensor> xs;
  for (const Operand& o : row.operands)
    xs.push_back(o.accepts == Accepts::integer ? zeros(shape, DType::i64)
                 : o.accepts == Accepts::boolean
                     ? ones(shape, DType::boolean)
                     : full(shape, 2).set_requires_grad(row.differentiable));
  return xs;
}

}  // namespace

TEST_CASE("every row with an axis takes a 0-dim tensor as one line of one element") {
  const std::map<const OpRow*, OnAxis> rows = rows_with_axes();
  CHECK(rows.size() >= 22);
  for (const auto& [row, on] : rows) {
    CAPTURE(std::string(row->name));
    for (Index wrong : {Index{1}, Index{-2}, kMost, kLeast})
      CHECK(has(error_of([&] { call(*row, operands_of(*row, {}), *on(wrong)); }), row->name));
    if (row == &Op::cat || row == &Op::slice) {  // as PyTorch: these need an axis to work on
      CHECK(has(error_of([&] { call(*row, operands_of(*row, {}), *on(0)); }), row->name));
      continue;
    }
    for (Index axis : {Index{0}, Index{-1}}) {
      const std::vector<Tensor> xs = operands_of(*row, {}), lines = operands_of(*row, {1});
      const Tensor y = call(*row, xs, *on(axis))[0], line = call(*row, lines, *on(axis))[0];
      CHECK(y.rank() == 0);
      CHECK(to_string(y.reshape({1})) == to_string(line.reshape({1})));
      if (!y.requires_grad()) continue;
      y.backward(ones({}));
      line.backward(ones(line.shape()));
      for (size_t k = 0; k < xs.size(); ++k)
        if (xs[k].requires_grad())
          CHECK(to_string(xs[k].grad().reshape({1})) == to_string(lines[k].grad()));
    }
  }
}

TEST_CASE("views of a 0-dim tensor take its axes where PyTorch does") {
  const Tensor x = full({}, 2.0);
  for (Index a : {0, -1}) {
    CHECK(x.transpose(a, 0).item() == 2);
    CHECK(x.squeeze(a).rank() == 0);
    CHECK(x.unsqueeze(a).shape() == Shape{1});
    CHECK(x.flatten(a).shape() == Shape{1});
    CHECK_THROWS_WITH_AS(x.select(a, 0), Contains("0 dimensions"), Error);
    CHECK_THROWS_WITH_AS(x.slice(a, 0, 1), Contains("0 dimensions"), Error);
    CHECK_THROWS_WITH_AS(x.size(a), Contains("0 dimensions"), Error);
    CHECK_THROWS_WITH_AS(split(x, 1, a), Contains("0 dimensions"), Error);
  }
  CHECK_THROWS_WITH_AS(x.transpose(1, 0), Contains("[transpose] axis 1"), Error);
  CHECK_THROWS_WITH_AS(x.squeeze(1), Contains("[squeeze] axis 1"), Error);
  CHECK_THROWS_WITH_AS(x.flatten(0, 1), Contains("[flatten] axis 1"), Error);
  CHECK_THROWS_WITH_AS(sum(x, {.axes = {0, -1}}), Contains("twice"), Error);
  // A 0-dim tensor beside a line of one axis.
  const Tensor line = tensor({4, 5, 6}), at = zeros({}, DType::i64);
  CHECK(gather(line, at + 1).item() == 5);
  CHECK(gather(x, zeros({3}, DType::i64)).to_vector() == Values{2, 2, 2});
  CHECK(index_select(x, zeros({1}, DType::i64)).rank() == 0);
  CHECK_THROWS_WITH_AS(index_select(x, zeros({2}, DType::i64)), Contains("one element"), Error);
  CHECK(scatter_add(x, zeros({2}, DType::i64), tensor({1, 3})).item() == 6);
  CHECK_THROWS_WITH_AS(gather(x, at + 1), Contains("1"), Error);
}

TEST_CASE("a strided view whose numbers overflow is refused") {
  const Tensor x = arange(6).to(DType::f32);
  constexpr Index big = Index{1} << 61;
  auto refused = [&](const Shape& shape, const Strides& strides, Index offset) {
    const std::string said = error_of([&] { as_strided(x, shape, strides, offset); });
    CHECK_MESSAGE((has(said, to_string(shape)) && has(said, to_string(strides)) &&
                   has(said, std::to_string(offset))),
                  said);
  };
  refused({9}, {big}, 0);  // 8 times 2^61 is 0 in 64 bits
  refused({5, 5}, {big, big}, 0);
  refused({3, 3}, {big * 2, -big * 2}, 0);
  refused({2}, {kMost}, 0);
  refused({2}, {kLeast}, 0);
  refused({2}, {1}, kMost);
  refused({1}, {1}, kMost);
  refused({2}, {1}, kLeast);
  refused({0, 4}, {1, big}, 0);
  refused({2, 2}, {2}, 0);
  refused({2}, {1, 1}, 0);
  refused({}, {1}, 0);
  for (const Index anywhere : {kMost, Index{-1}})
    CHECK(as_strided(x, {0}, {1}, anywhere).data() == x.data());
  CHECK(as_strided(x, {1, 3}, {big, 2}, 1).to_vector() == Values{1, 3, 5});
  CHECK(as_strided(x, {1, 3}, {kLeast, 2}, 1).to_vector() == Values{1, 3, 5});
  CHECK((as_strided(x, {3, 1}, {1, kMost}, 0) + 1).to_vector() == Values{1, 2, 3});
}

TEST_CASE("sizes, steps and windows that overflow are refused, and what fits is right") {
  const Tensor x = arange(6).to(DType::f32), image = ones({1, 1, 4, 4});
  CHECK(x.slice(0, 1, 6, kMost).to_vector() == Values{1});
  CHECK(x.slice(0, 1, kMost, 2).to_vector() == Values{1, 3, 5});
  CHECK(x.slice(0, 2, 2, kMost).numel() == 0);
  CHECK_THROWS_WITH_AS(x.slice(0, kLeast, 6), Contains("no range"), Error);
  CHECK_THROWS_WITH_AS(x.slice(0, kMost, kMost), Contains("no range"), Error);
  CHECK_THROWS_WITH_AS(x.select(0, kLeast), Contains("out of range"), Error);
  CHECK(x.slice(0, 5, 6, kMost).slice(0, 0, 1, kMost).to_vector() == Values{5});
  CHECK_THROWS_WITH_AS(empty({kMost}), Contains("elements"), Error);
  CHECK_THROWS_WITH_AS(empty(Shape{kMost, kMost}), Contains("elements"), Error);
  CHECK_THROWS_WITH_AS(empty({kLeast}), Contains("shape"), Error);
  CHECK_THROWS_WITH_AS(arange(kMost), Contains("elements"), Error);
  CHECK_THROWS_WITH_AS(arange(-1), Contains("(-1)"), Error);
  CHECK_THROWS_WITH_AS(x.reshape({kMost, -1}), Contains("elements"), Error);
  CHECK_THROWS_WITH_AS(x.reshape({kLeast}), Contains("(-9223372036854775808)"), Error);
  CHECK_THROWS_WITH_AS(x.expand({kMost, 6}), Contains("elements"), Error);
  CHECK_THROWS_AS(x.permute({kMost}), Error);
  CHECK_THROWS_AS(x.transpose(kLeast, 0), Error);
  CHECK_THROWS_WITH_AS(split(x, kLeast), Contains("1 or more"), Error);
  CHECK(split(x, kMost).size() == 1);
  CHECK_THROWS_WITH_AS(split(x, {kMost, kMost}), Contains("[split]"), Error);
  const Tensor wide = ones({1}).expand({Index{1} << 59});
  CHECK_THROWS_WITH_AS(cat({wide, wide}), Contains("elements"), Error);
  const Tensor w = ones({1, 1, 2, 2});
  for (Index n : {kMost, Index{1} << 62, Index{1} << 32}) {
    CAPTURE(n);
    CHECK_THROWS_WITH_AS(conv2d(image, w, {}, {.stride = n}), Contains("[conv2d]"), Error);
    CHECK_THROWS_WITH_AS(conv2d(image, w, {}, {.padding = n}), Contains("[conv2d]"), Error);
    CHECK_THROWS_WITH_AS(conv2d(image, w, {}, {.dilation = n}), Contains("[conv2d]"), Error);
    CHECK_THROWS_WITH_AS(conv2d(image, w, {}, {.groups = n}), Contains("[conv2d]"), Error);
    CHECK_THROWS_WITH_AS(max_pool2d(image, {.kernel_size = n}), Contains("[max_pool2d]"), Error);
    CHECK_THROWS_WITH_AS(max_pool2d(image, {.dilation = n}), Contains("[max_pool2d]"), Error);
    CHECK_THROWS_WITH_AS(avg_pool2d(image, {.stride = n}), Contains("[avg_pool2d]"), Error);
    CHECK_THROWS_WITH_AS(avg_pool2d(image, {.kernel_size = n, .padding = n}),
                         Contains("[avg_pool2d]"), Error);
  }
  CHECK(conv2d(image, w, {}, {.stride = (Index{1} << 31) - 1}).item() == 4);
  CHECK_THROWS_WITH_AS(conv2d(image, w, {}, {.padding = (Index{1} << 31) - 1}),
                       Contains("elements"), Error);
  const Tensor none = empty(Shape{0, 0, 4, 4}), no_weight = empty(Shape{0, 0, 2, 2});
  CHECK_THROWS_WITH_AS(conv2d(none, no_weight, {}, {.groups = Index{1} << 62}), Contains("groups"),
                       Error);
  for (Index i : {kMost, kLeast, Index{1} << 61}) {
    const Tensor at = full({1}, i, DType::i64);
    CHECK_THROWS_WITH_AS(gather(x, at), Contains("[gather]"), Error);
    CHECK_THROWS_WITH_AS(index_select(x, at), Contains("[index_select]"), Error);
    CHECK_THROWS_WITH_AS(scatter_add(x, at, ones({1})), Contains("[scatter_add]"), Error);
    CHECK_THROWS_WITH_AS(embedding(ones({3, 2}), at), Contains("[embedding]"), Error);
    CHECK_THROWS_WITH_AS(cross_entropy(ones({1, 3}), at), Contains("[cross_entropy]"), Error);
    CHECK_THROWS_WITH_AS(nll_loss(ones({1, 3}), at), Contains("[nll_loss]"), Error);
  }
  CHECK(rope(ones({1, 2}), {.offset = kMost}).numel() == 2);
}

TEST_CASE("a blob holds what the tensor was, whatever is done to it then") {
  const Tensor x = tensor({1, 2, 3});
  std::vector<Tensor> keep;
  const models::Blob blob = models::blob_of("x", x, keep);
  Tensor(x).mul_(10.0);
  CHECK(models::tensor_of(blob).to_vector() == Values{1, 2, 3});
}
