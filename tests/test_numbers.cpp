// Numbers: those that a dtype does not hold, and 64 bits kept from end to end.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/autograd/anomaly.h"
#include "minim/core/probe.h"
#include "minim/core/warn.h"
#include "minim/models/init.h"
#include "minim/ops/composite.h"
#include "minim/testing/op_trial.h"
#include "minim/tests/samples.h"

using namespace minim;
using doctest::Contains;
using test::error_of;
using test::has;

namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The warnings of f, one a line.
template <class F>
std::string warnings_of(F f) {
  std::string all;
  WarningScope scope([&](const std::string& text) { all += text + "\n"; });
  f();
  return all;
}

struct Beyond {
  DType dtype;
  double over, most, tiny;  ///< a finite number that is too large, the largest, and what becomes 0
};
constexpr Beyond kBeyond[] = {{DType::f16, 1e9, 65504, 1e-8},
                              {DType::bf16, 1e39, 3e38, 1e-42},
                              {DType::f32, 1e39, 3.4028235e38, 1e-46},
                              {DType::f8e4m3, 500, 448, 1e-3},
                              {DType::f8e5m2, 1e5, 57344, 1e-6}};

}  // namespace

TEST_CASE("no maker of tensors turns a finite number into inf") {
  for (const Beyond& b : kBeyond)
    for (double v : {b.over, -b.over}) {
      const std::string name = name_of(b.dtype);
      auto refused = [&](auto f, const char* op) {
        const std::string said = error_of(f);
        CHECK_MESSAGE((has(said, op) && has(said, "does not fit " + name)), std::string(op), " ",
                      name, ": ", said);
      };
      Tensor x = zeros({2}, b.dtype);
      refused([&] { full({2}, v, b.dtype); }, "[full]");
      refused([&] { x.fill_(v); }, "[fill_]");
      refused([&] { x.copy_(v); }, "[copy_]");
      refused([&] { tensor({0, v}, b.dtype); }, "[tensor]");
      refused([&] { models::init::uniform(x, v, v); }, "[init]");
      refused([&] { models::init::normal(x, v, 0); }, "[init]");
      refused([&] { tensor(Values{0, v}, {2}, b.dtype); }, "[tensor]");
      CHECK(x.to_vector() == Values{0, 0});
      CHECK(x.version() == 0);
      for (double fits : {b.most, -b.most}) {
        CHECK(std::isfinite(full({1}, fits, b.dtype).item()));
        CHECK(std::isfinite(tensor({fits}, b.dtype).item()));
      }
      CHECK(std::isnan(full({1}, kNaN, b.dtype).item()));
      if (b.dtype == DType::f8e4m3) continue;  // has no infinities
      CHECK(full({1}, std::copysign(kInf, v), b.dtype).item() == std::copysign(kInf, v));
      CHECK(tensor({kInf}, b.dtype).item() == kInf);
      CHECK(x.fill_(kInf).to_vector()[0] == kInf);
    }
  CHECK(full({1}, 65519, DType::f16).item() == 65504);  // is nearer to it than to what would follow
  CHECK_THROWS_WITH_AS(full({1}, 65520, DType::f16), Contains("65504"), Error);
  CHECK_THROWS_WITH_AS(arange(70000, DType::f16), Contains("69999 does not fit f16"), Error);
  CHECK(arange(0, DType::u8).numel() == 0);
}

TEST_CASE("no maker of tensors wraps an integer or invents one") {
  CHECK_THROWS_WITH_AS(full({1}, 300, DType::u8), Contains("300 does not fit u8"), Error);
  CHECK_THROWS_WITH_AS(full({1}, -1, DType::u8), Contains("0 to 255"), Error);
  CHECK_THROWS_WITH_AS(full({1}, 2147483648, DType::i32), Contains("2^31 - 1"), Error);
  CHECK_THROWS_WITH_AS(full({1}, 1e19, DType::i64), Contains("2^63 - 1"), Error);
  CHECK_THROWS_WITH_AS(full({1}, 0x1p63, DType::i64), Contains("i64"), Error);
  CHECK_THROWS_WITH_AS(full({1}, kNaN, DType::i64), Contains("nan does not fit i64"), Error);
  CHECK_THROWS_WITH_AS(full({1}, kInf, DType::i32), Contains("inf does not fit"), Error);
  CHECK_THROWS_WITH_AS(full({1}, uint64_t(1) << 63, DType::i64), Contains("i64"), Error);
  CHECK_THROWS_WITH_AS(tensor({1.0, 1e19}, DType::i64), Contains("[tensor]"), Error);
  CHECK_THROWS_WITH_AS(tensor({256}, DType::u8), Contains("256"), Error);
  CHECK_THROWS_WITH_AS(zeros({1}, DType::u8).fill_(256), Contains("[fill_]"), Error);
  CHECK_THROWS_WITH_AS(zeros({1}, DType::i32).copy_(int64_t(1) << 40), Contains("[copy_]"), Error);
  CHECK_THROWS_WITH_AS(arange(300, DType::u8), Contains("299 does not fit u8"), Error);
  const Tensor u = tensor({5, 6}, DType::u8), i = tensor({5, 6}, DType::i32);
  CHECK_THROWS_WITH_AS(u + 300, Contains("300 (operand 'y') does not fit u8"), Error);
  CHECK_THROWS_WITH_AS(i * (int64_t(1) << 40), Contains("[mul]"), Error);
  CHECK_THROWS_WITH_AS(masked_fill(u, u == 5, 256), Contains("(operand 'value')"), Error);
  CHECK((u < 300).to_vector() == Values{1, 1});  // compared as they are
  CHECK((u == 256 + 5).to_vector() == Values{0, 0});
  CHECK((i > -(int64_t(1) << 40)).to_vector() == Values{1, 1});
  CHECK(full({1}, 255.9, DType::u8).item() == 255);
  CHECK(full({1}, -0x1p63, DType::i64).item<int64_t>() == std::numeric_limits<int64_t>::min());
  CHECK(full({1}, 7.5, DType::boolean).item() == 1);
}

namespace {

/// The row with a number in place of operand k and the others 0 (masks true or false) in that
/// dtype, all of one element; undefined where the row does not take them.
Tensor with_number(const OpRow& row, size_t k, double number, DType d, bool mask) {
  std::vector<Tensor> xs;
  for (size_t j = 0; j < row.operands.size(); ++j) {
    const Accepts accepts = row.operands[j].accepts;
    xs.push_back(j == k                        ? Tensor(number)
                 : accepts == Accepts::boolean ? full({1}, mask, DType::boolean)
                 : accepts == Accepts::integer ? zeros({1}, DType::i64)
                                               : zeros({1}, d));
  }
  return call(row, xs, row.examples().front().attrs)[0];
}

bool takes_number(const OpRow& row, size_t k) {
  const auto floating = [](const Operand& o) { return o.accepts == Accepts::floating; };
  if (!floating(row.operands[k]) || row.view ||
      std::count_if(row.operands.begin(), row.operands.end(), floating) < 2)
    return false;  // the dtype is that of the others
  try {
    with_number(row, k, 0.5, DType::f32, true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("every row refuses a number as an operand that the dtype does not hold") {
  int rows = 0;
  for (const OpRow* row : all_ops())
    for (size_t k = 0; k < row->operands.size(); ++k) {
      if (!takes_number(*row, k)) continue;
      ++rows;
      for (const Beyond& b : kBeyond) {
        if (is_storage_only(b.dtype)) continue;
        for (double v : {b.over, -b.over}) {
          const std::string said = error_of([&] { with_number(*row, k, v, b.dtype, true); });
          CHECK_MESSAGE((has(said, "[" + std::string(row->name) + "] the number") &&
                         has(said, "(operand '" + std::string(row->operands[k].name) + "')") &&
                         has(said, std::string("does not fit ") + name_of(b.dtype))),
                        std::string(row->name), " ", k, ": ", said);
        }
        CHECK_NOTHROW(with_number(*row, k, b.most, b.dtype, true));
        CHECK_NOTHROW(with_number(*row, k, -kInf, b.dtype, true));
      }
    }
  CHECK(rows >= 20);
}

TEST_CASE("every row that may hand a number on warns where its result's dtype makes 0 of it") {
  int warned = 0;
  for (const OpRow* row : all_ops())
    for (size_t k = 0; k < row->operands.size(); ++k) {
      if (!takes_number(*row, k) || row->result != Result::same) continue;
      for (double sign : {1.0, -1.0})
        for (const Beyond& b : kBeyond) {
          if (is_storage_only(b.dtype)) continue;
          bool handed_on = false;
          for (double s : {1.0, -1.0})
            for (bool mask : {true, false})
              handed_on |=
                  std::fabs(with_number(*row, k, s * 0.125, DType::f64, mask).item()) == 0.125;
          const std::string said =
              warnings_of([&] { with_number(*row, k, sign * b.tiny, b.dtype, true); });
          const std::string named = std::string("[") + row->name + "] the number";
          CHECK_MESSAGE(has(said, named) == handed_on, std::string(row->name), " ", k, ": ", said);
          CHECK_MESSAGE(handed_on == bool(row->shown >> k & 1), std::string(row->name), " ", k);
          if (!handed_on) continue;
          ++warned;
          CHECK(has(said, std::string("becomes 0 in ") + name_of(b.dtype)));
          CHECK(has(said, "(operand '"));
        }
      CHECK(warnings_of([&] { with_number(*row, k, 1e-7, DType::f16, true); }).empty());
      CHECK(warnings_of([&] { with_number(*row, k, 0.0, DType::f16, true); }).empty());
    }
  CHECK(warned >= 40);
}

TEST_CASE("every number among the attributes must fit what it is used in") {
  int numbers = 0;
  for (const OpRow* row : all_ops())
    for (const NumberAttr& number : row->numbers) {
      ++numbers;
      const Example example = row->examples().front();
      const double given = number.of(example.attrs);
      // The attributes with another value for this one, wherever it is among them.
      auto with = [&](double v) {
        if (given == v) return example.attrs;
        std::array<double, 12> words = example.attrs.as<std::array<double, 12>>();
        for (double& word : words) {
          const double before = std::exchange(word, v);
          if (number.of(Attrs(words)) == v) return Attrs(words);
          word = before;
        }
        FAIL("no such attribute");
        return example.attrs;
      };
      auto run = [&](double v, DType d) {
        std::vector<Tensor> xs;
        for (size_t k = 0; k < row->operands.size(); ++k)
          xs.push_back(test::absent(example.shapes[k]) ? Tensor() : ones(example.shapes[k], d));
        call(*row, xs, with(v));
      };
      for (DType d : {DType::f16, DType::bf16, DType::f32}) {
        const std::string attribute = std::string("(attribute '") + number.name + "')";
        const double over = number.shown && d == DType::f16 ? 1e9 : 1e39;
        const std::string said = error_of([&] { run(over, d); });
        CHECK_MESSAGE((has(said, attribute) && has(said, "does not fit ")), std::string(row->name),
                      ": ", said);
        const double tiny = number.shown && d == DType::f16 ? 1e-8 : 1e-46;
        const std::string warned = warnings_of([&] { run(tiny, d); });
        const bool half = number.shown && is_half(d);
        const std::string zero =
            half ? std::string("becomes 0 in ") + name_of(d)
                 : "becomes 0 in f32, whose smallest positive value is 1.4013e-45";
        for (const std::string& part :
             {attribute, zero, std::string("and in which it is used; give a larger one"),
              std::string(half ? "as with .to(DType::f32)" : "as with .to(DType::f64)")})
          CHECK_MESSAGE(has(warned, part), row->name, ": ", warned);
        CHECK(warnings_of([&] { run(0.5, d); }).empty());
      }
      CHECK_NOTHROW(run(1e39, DType::f64));
    }
  CHECK(numbers >= 13);
}

TEST_CASE("C3: clamp refuses bounds beyond f16, and under autocast says that 1e-8 is 0 there") {
  const Tensor h = tensor({-1, 0, 1}, DType::f16);
  CHECK_THROWS_WITH_AS(clamp(h, {.lo = -1e9, .hi = 1e9}), Contains("does not fit f16"), Error);
  CHECK_THROWS_WITH_AS(clamp(h, {.hi = 1e9}), Contains("(attribute 'hi')"), Error);
  CHECK_THROWS_WITH_AS(clamp(h.to(DType::f32), {.hi = 1e39}), Contains("f32"), Error);
  CHECK(clamp(h, {.lo = -kInf, .hi = kInf}).to_vector() == Values{-1, 0, 1});
  const Tensor w = ones({2, 2});
  std::string said;
  for (int i = 0; i < 2; ++i)
    said = warnings_of([&] {
      amp::Autocast on(DType::f16);
      const Tensor p = matmul(w, w) * 0.0;
      log(maximum(p, 1e-8));
      log(clamp(p, {.lo = 1e-8}));
      log(p + 1e-8);
      maximum(p.to(DType::f32), 1e-8);
    });
  CHECK(has(said,
            "[maximum] the number 1e-08 (operand 'y') becomes 0 in f16, whose smallest "
            "positive value is 5.96046e-08"));
  CHECK(has(said, "[clamp] the number 1e-08 (attribute 'lo')"));
  CHECK(has(said, "[add] the number 1e-08 (operand 'y')"));
  CHECK(std::count(said.begin(), said.end(), '\n') == 3);
}

TEST_CASE(
    "L9: an addition in place that 16 bits lose is counted, and an inf that they make is found") {
  struct Count : Probe {
    int64_t nonzero = 0, lost = 0;
    void stored_half(int64_t n, int64_t l) override { nonzero += n, lost += l; }
  } count;
  Tensor x = tensor({1, 1, 0, 1000}, DType::f16);
  {
    ProbeScope scope(&count);
    x.add_(tensor({1e-4, 0, 1e-8, 1}));
  }
  CHECK(x.to_vector() == Values{1, 1, 0, 1001});
  CHECK(count.nonzero == 3);
  CHECK(count.lost == 2);
  {
    ProbeScope scope(&count);
    x.sub_(1.0);
  }
  CHECK(count.nonzero == 7);
  CHECK(count.lost == 2);
  NoGrad no_grad;
  autograd::Anomaly anomaly;
  CHECK_THROWS_WITH_AS(x.add_(tensor({1e6, 0, 0, 0})), Contains("[add] Inf"), Error);
  CHECK(x.to_vector()[0] == kInf);
}

TEST_CASE("values print with the digits that tell them apart, in every dtype") {
  CHECK(to_string(tensor({1234567}, DType::i64)) == "[1234567] i64(1)");
  CHECK(to_string(full({}, 16777217, DType::f64)) == "16777217 f64()");
  CHECK(to_string(full({}, 9007199254740993, DType::i64)) == "9007199254740993 i64()");
  CHECK(to_string(full({}, 0.1)) == "0.1 f32()");
  CHECK(to_string(full({}, 0.1, DType::f16)) == "0.1 f16()");
  CHECK(to_string(full({}, 0.1, DType::f64)) == "0.1 f64()");
  CHECK(to_string(tensor({1 / 3.0})) == "[0.33333334] f32(1)");
  CHECK(to_string(tensor({kInf, -kInf, -kNaN, -0.0})) == "[inf, -inf, nan, -0] f32(4)");
  CHECK(to_string(tensor({0.0, 255}, DType::u8)) == "[0, 255] u8(2)");
  CHECK(to_string(tensor({1, 2, 3, 4}).reshape({2, 2}).transpose(0, 1)) ==
        "[[1, 3], [2, 4]] f32(2, 2)");
  auto reads_back = [](auto from_bits, int n) {
    using T = decltype(from_bits(0));
    for (int u = 0; u < n; ++u) {
      const float v = float(from_bits(u));
      const std::string text = to_string(full({}, v, dtype_of<T>()));
      const double read = std::strtod(text.c_str(), nullptr);
      if (std::isnan(v) ? !std::isnan(read) : float(T(read)) != v) return u;
    }
    return -1;
  };
  CHECK(reads_back([](int u) { return f16::from_bits(uint16_t(u)); }, 1 << 16) == -1);
  CHECK(reads_back([](int u) { return bf16::from_bits(uint16_t(u)); }, 1 << 16) == -1);
  CHECK(reads_back([](int u) { return f8e4m3::from_bits(uint8_t(u)); }, 256) == -1);
  CHECK(reads_back([](int u) { return f8e5m2::from_bits(uint8_t(u)); }, 256) == -1);
}

TEST_CASE("item<T> is exact or refused") {
  const int64_t big = (int64_t(1) << 53) + 1;
  const Tensor x = full({}, big, DType::i64), half = full({}, 2.5),
               many = full({}, 300, DType::i32);
  CHECK(x.item<int64_t>() == big);
  CHECK(x.item() == double(big - 1));
  CHECK_THROWS_WITH_AS(x.item<double>(), Contains("9007199254740993"), Error);
  CHECK_THROWS_WITH_AS(x.item<int>(), Contains("does not hold it"), Error);
  CHECK(many.item<int>() == 300);
  CHECK(many.item<float>() == 300);
  CHECK_THROWS_AS(many.item<uint8_t>(), Error);
  CHECK_THROWS_AS(full({}, -1, DType::i64).item<size_t>(), Error);
  CHECK(full({}, 255, DType::u8).item<uint8_t>() == 255);
  CHECK(half.item<float>() == 2.5f);
  CHECK(half.item<double>() == 2.5);
  CHECK_THROWS_AS(half.item<int64_t>(), Error);
  CHECK(full({}, 3.0).item<int64_t>() == 3);
  CHECK(full({}, 0.1, DType::f64).item<float>() == 0.1f);
  CHECK_THROWS_AS(full({}, 1e300, DType::f64).item<float>(), Error);
  CHECK_THROWS_AS(full({}, 0x1p63, DType::f64).item<int64_t>(), Error);
  CHECK(full({}, -0x1p63, DType::f64).item<int64_t>() == std::numeric_limits<int64_t>::min());
  CHECK(full({}, kInf).item<float>() == std::numeric_limits<float>::infinity());
  CHECK_THROWS_AS(full({}, kNaN).item<int>(), Error);
  CHECK(full({}, 1).item<bool>());
  CHECK_FALSE(full({}, 0).item<bool>());
  CHECK_THROWS_WITH_AS(full({}, 2).item<bool>(), Contains("0 or 1"), Error);
  CHECK_THROWS_WITH_AS(zeros({2}).item<int>(), Contains("one element"), Error);
}

TEST_CASE("an i64 keeps its 64 bits through makers, copies, comparisons and ops" *
          doctest::test_suite("host")) {
  const int64_t big = (int64_t(1) << 53) + 1, most = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> values{big, most, -most - 1};
  const Tensor x = tensor(std::span<const int64_t>(values), {3});
  auto exact = [](const Tensor& t) {
    const Tensor dense = t.contiguous();
    const auto s = dense.span<int64_t>();
    return std::vector<int64_t>(s.begin(), s.end());
  };
  CHECK(x.dtype() == DType::i64);
  CHECK(exact(x) == values);
  CHECK(exact(tensor({big, most}, DType::i64)) == std::vector<int64_t>{big, most});
  CHECK(exact(full({2}, big, DType::i64)) == std::vector<int64_t>{big, big});
  CHECK(exact(zeros({1}, DType::i64).fill_(big)) == std::vector<int64_t>{big});
  CHECK(exact(zeros({1}, DType::i64).copy_(big)) == std::vector<int64_t>{big});
  CHECK(exact(x.clone().slice(0, 0, 3, 2)) == std::vector<int64_t>{big, -most - 1});
  CHECK(exact(zeros({1}, DType::i64).add_(big)) == std::vector<int64_t>{big});
  CHECK((x == big).to_vector() == Values{1, 0, 0});
  CHECK((x == big - 1).to_vector() == Values{0, 0, 0});
  CHECK((x > big - 1).to_vector() == Values{1, 1, 0});
  CHECK(exact(masked_fill(x, x == most, big)) == std::vector<int64_t>{big, big, -most - 1});
  CHECK(exact(where(x > 0, x, big - 2)) == std::vector<int64_t>{big, most, big - 2});
  CHECK(max(x).item<int64_t>() == most);
  CHECK(exact(maximum(x, big)) == std::vector<int64_t>{big, most, big});
  CHECK(sum(x.slice(0, 1, 3)).item<int64_t>() == -1);
}

TEST_CASE("an i64 is rounded once on its way to any float") {
  // Just above a tie that double would make of it.
  const int64_t for_f32 = (int64_t(1) << 54) + (int64_t(1) << 30) + 1;
  const int64_t for_bf16 = (int64_t(1) << 62) + (int64_t(1) << 54) + 1;
  for (int64_t sign : {1, -1}) {
    const Tensor x = tensor({sign * for_f32, sign * for_bf16}, DType::i64);
    const double s = double(sign);
    CHECK(x.to(DType::f32).to_vector()[0] == s * (0x1p54 + 0x1p31));
    CHECK(x.to(DType::bf16).to_vector()[1] == s * (0x1p62 + 0x1p55));
    CHECK(full({}, sign * for_f32).item() == s * (0x1p54 + 0x1p31));
    CHECK(tensor({sign * for_bf16}, DType::bf16).item() == s * (0x1p62 + 0x1p55));
    CHECK(full({}, sign * for_bf16, DType::bf16).item() == s * (0x1p62 + 0x1p55));
  }
}
