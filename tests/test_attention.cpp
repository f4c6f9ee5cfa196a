// The fused attention against the plain formula, and both against f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "minim/autograd/node.h"
#include "minim/core/allocator.h"
#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/core/probe.h"
#include "minim/core/random.h"
#include "minim/ops/call.h"
#include "minim/ops/functional.h"

using namespace minim;

namespace {

using Options = op::ScaledDotProductAttention::Attrs;
using Kind = AttentionKernel;

Tensor noise(const Shape& shape, uint64_t stream, double size = 1) {
  std::vector<double> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = size * normal(Philox::block(5, stream, i))[0];
  return tensor(values, shape, DType::f64);
}

struct Case {
  const char* what;
  Index batch, heads, kv_heads, queries, keys, width, value_width;
  Options options = {};
  double visible = 1;  ///< share of keys that the mask leaves; 1: no mask
  double size = 1;     ///< of q and k

  Tensor q() const { return noise({batch, heads, queries, width}, 1, size); }
  Tensor k() const { return noise({batch, kv_heads, keys, width}, 2, size); }
  Tensor v() const { return noise({batch, kv_heads, keys, value_width}, 3); }
  /// Every fifth query sees nothing.
  Tensor mask() const {
    if (visible == 1) return {};
    std::vector<double> values(size_t(batch * queries * keys));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = uniform01(Philox::block(6, 0, i)[0]) < visible && Index(i) / keys % 5 != 3;
    return tensor(values, {batch, 1, queries, keys}, DType::boolean);
  }
};

/// The output and the gradients of q, k and v.
using Results = std::array<Tensor, 4>;
constexpr const char* kNames[] = {"output", "gradient of q", "gradient of k", "gradient of v"};

/// Computes in `dtype`, or in f64 what the inputs rounded to it give.
Results run(const Case& c, DType dtype, Kind kind, DType compute) {
  Tensor in[] = {c.q(), c.k(), c.v(), noise({c.batch, c.heads, c.queries, c.value_width}, 4)};
  for (Tensor& x : in) x = x.to(dtype).to(compute).detach();
  for (Tensor* x : {&in[0], &in[1], &in[2]}) x->set_requires_grad();
  manual_seed(11);
  Options options = c.options;
  options.kernel = kind;
  Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], c.mask(), options);
  y.backward(in[3]);
  return {y, in[0].grad(), in[1].grad(), in[2].grad()};
}
Results run(const Case& c, DType dtype, Kind kind) { return run(c, dtype, kind, dtype); }

bool same_bits(const Results& a, const Results& b) {
  bool same = true;
  for (size_t i = 0; i < a.size(); ++i)
    same &=
        std::memcmp(a[i].data(), b[i].data(), size_t(a[i].numel()) * size_of(a[i].dtype())) == 0;
  return same;
}

/// Root of the sum of squares of the errors, and the largest one.
std::array<double, 2> errors(const Tensor& x, const Tensor& exact) {
  const auto a = x.to_vector(), b = exact.to_vector();
  double squares = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = std::isfinite(a[i]) ? std::fabs(a[i] - b[i]) : INFINITY;
    squares += e * e, largest = std::max(largest, e);
  }
  return {std::sqrt(squares), largest};
}

constexpr Options kCausal{.causal = true};
const Case kCases[] = {
    {"one tile", 2, 3, 3, 64, 64, 32, 32, kCausal},
    {"sizes that no tile divides", 1, 2, 2, 101, 101, 17, 23, kCausal},
    {"more keys than queries", 1, 2, 2, 33, 77, 24, 40},
    {"more queries than keys", 1, 2, 2, 90, 37, 16, 8, kCausal},
    {"keys that no query sees", 2, 20, 10, 33, 77, 16, 16, kCausal},
    {"keys that no query of few heads sees", 1, 2, 2, 33, 77, 16, 16, kCausal},
    {"one row", 2, 2, 2, 1, 50, 16, 16},
    {"one token", 2, 3, 3, 1, 1, 8, 8, kCausal},
    {"mask", 2, 2, 2, 70, 83, 16, 16, {}, 0.5},
    {"mask and causal", 2, 2, 2, 70, 70, 16, 16, kCausal, 0.3},
    {"grouped heads", 2, 6, 2, 70, 70, 32, 16, kCausal},
    {"one head of keys for many", 2, 20, 1, 40, 40, 16, 16},
    {"dropout", 2, 2, 2, 65, 67, 16, 16, {.dropout = 0.3}},
    {"dropout, groups, mask and causal",
     2,
     4,
     2,
     65,
     67,
     16,
     16,
     {.causal = true, .dropout = 0.5},
     0.7},
    {"large scores", 2, 2, 2, 64, 64, 64, 64, {.scale = 1}, 1, 8},
    {"negative scale", 1, 2, 2, 40, 40, 16, 16, {.scale = -0.7}},
    {"negative scale and mask", 1, 2, 2, 40, 40, 16, 16, {.scale = -0.7}, 0.5},
    {"keys in two chunks", 1, 1, 1, 1100, 1100, 16, 16, {.causal = true, .dropout = 0.1}},
    {"keys in two chunks, many heads", 4, 8, 4, 40, 1100, 16, 16, {}, 0.5},
};

}  // namespace

TEST_CASE("fused attention errs against f64 at most twice as much as the reference") {
  // Both round the same operations once, in another order: the errors are of one size, and twice is
  // what separates that from a lost digit.
  for (const Case& c : kCases)
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Results exact = run(c, dtype, Kind::reference, DType::f64),
                    reference = run(c, dtype, Kind::reference), fused = run(c, dtype, Kind::fused);
      for (size_t i = 0; i < exact.size(); ++i) {
        const std::string at = std::string(c.what) + ", " + name_of(dtype) + ", " + kNames[i];
        INFO(at);
        const auto e = errors(fused[i], exact[i]), allowed = errors(reference[i], exact[i]);
        CHECK(e[0] <= 2 * allowed[0]);
        CHECK(e[1] <= 2 * allowed[1]);
      }
    }
}

TEST_CASE("threads do not change a bit of fused attention, nor does the number of heads" *
          doctest::test_suite("host")) {
  const int before = threads();
  for (Case c :
       {Case{"few heads", 1, 4, 2, 300, 300, 32, 32, {.causal = true, .dropout = 0.2}, 0.8},
        Case{"many heads", 4, 8, 4, 70, 70, 32, 32, {.causal = true, .dropout = 0.2}, 0.8}}) {
    INFO(std::string(c.what));
    set_threads(1);
    const Results one = run(c, DType::f32, Kind::fused);
    for (int n : {2, 4}) {
      set_threads(n);
      CHECK(same_bits(run(c, DType::f32, Kind::fused), one));
    }
  }
  set_threads(before);
  // Of 20 heads each is a task of its own; alone it is cut into blocks.
  const Case all{"", 1, 20, 20, 150, 150, 16, 16, kCausal};
  Tensor in[] = {all.q(), all.k(), all.v(), noise({1, 20, 150, 16}, 4)};
  auto gradients = [&](Index head) {
    Tensor leaf[3];
    for (size_t i = 0; i < 4; ++i) {
      Tensor x = head < 0 ? in[i] : in[i].slice(1, head, head + 1);
      if (i < 3) leaf[i] = x.to(DType::f32).contiguous().detach().set_requires_grad();
    }
    Tensor g = head < 0 ? in[3] : in[3].slice(1, head, head + 1);
    Tensor y = scaled_dot_product_attention(leaf[0], leaf[1], leaf[2], {}, all.options);
    y.backward(g.to(DType::f32));
    return Results{y, leaf[0].grad(), leaf[1].grad(), leaf[2].grad()};
  };
  const Results whole = gradients(-1), seventh = gradients(7);
  for (size_t i = 0; i < whole.size(); ++i)
    CHECK(whole[i].slice(1, 7, 8).to_vector() == seventh[i].to_vector());
}

/// Counts the numbers stored in 16 bits that are not 0.
struct Stores : Probe {
  void stored_half(int64_t n, int64_t) override { nonzero += n; }
  std::atomic<int64_t> nonzero = 0;
};

TEST_CASE("attention gives the same bits whatever the strides and whether a probe counts" *
          doctest::test_suite("host")) {
  // Rows whose numbers lie side by side are loaded, packed and stored in one call, unless a probe
  // wants to know; others number by number.
  Stores probe;
  for (const Case& c : {kCases[0], kCases[1], Case{"", 2, 20, 10, 70, 70, 24, 16, kCausal}})
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      const std::string at = std::string(c.what) + ", " + name_of(dtype);
      INFO(at);
      auto gradients = [&](bool dense, Probe* counts = nullptr) {
        Tensor leaf[] = {c.q(), c.k(), c.v()}, in[3];  // f64: what is stored is the operands' dtype
        for (size_t i = 0; i < 3; ++i) {
          in[i] = leaf[i].set_requires_grad().to(dtype);
          if (!dense) in[i] = in[i].transpose(2, 3).contiguous().transpose(2, 3);
        }
        const Tensor g = noise({c.batch, c.heads, c.queries, c.value_width}, 4).to(dtype);
        const ProbeScope scope(counts);
        Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {}, c.options);
        CHECK((y.strides()[3] == 1) == dense);
        y.backward(g);
        return Results{y.detach().contiguous(), leaf[0].grad(), leaf[1].grad(), leaf[2].grad()};
      };
      const Results dense = gradients(true);
      CHECK(same_bits(gradients(false), dense));
      CHECK(same_bits(gradients(true, &probe), dense));
      int64_t nonzero = 0;
      for (const Tensor& x : dense)
        for (double value : x.to_vector()) nonzero += value != 0;
      CHECK((probe.nonzero.exchange(0) >= nonzero) == is_half(dtype));
    }
}

TEST_CASE("a number that is not finite takes its head to the formula wherever it is" *
          doctest::test_suite("host")) {
  Stores stores;
  for (const Index heads : {2, 20})
    for (size_t which = 0; which < 4; ++which)
      for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
        for (double value : {double(INFINITY), double(NAN)}) {
          Results results[2];
          int64_t stored[2];
          for (Kind kind : {Kind::fused, Kind::reference}) {
            Tensor in[4];
            for (size_t i = 0; i < 4; ++i) {
              in[i] = noise({1, heads, 40, 24}, i).to(dtype).detach();
              if (i == which) in[i].slice(1, heads - 1, heads).slice(2, 39, 40).fill_(value);
            }
            for (size_t i = 0; i < 3; ++i) in[i].set_requires_grad();
            const ProbeScope scope(&stores);
            Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {},
                                                    {.causal = true, .kernel = kind});
            y.backward(in[3]);
            stored[kind == Kind::reference] = stores.nonzero.exchange(0);
            auto last = [=](const Tensor& x) { return x.slice(1, heads - 1, heads).contiguous(); };
            results[kind == Kind::reference] = {last(which < 3 ? y.detach() : in[3]),
                                                last(in[0].grad()), last(in[1].grad()),
                                                last(in[2].grad())};
          }
          const std::string at = std::to_string(heads) + " heads, operand " +
                                 std::to_string(which) + ", " + name_of(dtype);
          INFO(at);
          CHECK(same_bits(results[0], results[1]));
          CHECK(stored[0] == stored[1]);  // none twice
        }
}

TEST_CASE("a row of attention is 16 sums and then a tree whatever rows are summed with it") {
  constexpr Index kRows = 19, kSize = 40, kStride = 48;
  for (int i = 0; i < kIsas; ++i) {
    const IsaKernels* kernels = isa_at(i);
    if (!kernels) continue;
    const Index lanes = Index(4) << kernels->level;  // of a vector
    std::vector<float> p(size_t(kRows * kStride)), d(p.size()), mean(32, 0.5f);
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = float(normal(Philox::block(8, 0, j))[0]),
      d[j] = float(normal(Philox::block(8, 1, j))[0]);
      if (Index(j) % kStride >= kSize || j % 7 == 0) p[j] = 0, d[j] = NAN;
    }
    std::fill(mean.begin() + kRows, mean.end(), -0.0f);  // which adding 0 would change
    kernels->attention32.weigh(kRows, kSize, kSize, p.data(), d.data(), kStride, mean.data());
    for (Index row = 0; row < kRows; ++row) {
      float sum[16] = {};
      for (Index j = 0; j < kStride; ++j)
        if (const size_t at = size_t(row * kStride + j); p[at] != 0) sum[j % 16] += p[at] * d[at];
      for (Index j = lanes; j < 16; ++j) sum[j % lanes] += sum[j];
      for (Index half = lanes / 2; half > 0; half /= 2)
        for (Index j = 0; j < half; ++j) sum[j] += sum[j + half];
      CHECK(mean[size_t(row)] == 0.5f + sum[0]);
    }
    for (size_t j = kRows; j < mean.size(); ++j) CHECK(std::signbit(mean[j]));
  }
}

TEST_CASE("fused attention never holds a matrix of queries by keys") {
  const Index heads = 8, time = 1024;
  const double matrices = double(heads * time * time) * sizeof(float);
  const int before = threads();
  set_threads(2);  // each has its own tiles
  auto peak = [&](Kind kind) {
    Tensor in[4];
    for (uint64_t i = 0; i < 4; ++i) in[i] = noise({1, heads, time, 16}, i).to(DType::f32).detach();
    for (Tensor* x : {&in[0], &in[1], &in[2]}) x->set_requires_grad();
    const size_t held = memory::stats().total.current;
    memory::reset_peak();
    scaled_dot_product_attention(in[0], in[1], in[2], {}, {.causal = true, .kernel = kind})
        .backward(in[3]);
    return double(memory::stats().total.peak - held);
  };
  CHECK(peak(Kind::reference) > matrices);
  CHECK(peak(Kind::fused) < matrices / 8);
  set_threads(before);
}

TEST_CASE("attention drops the probabilities that the op dropout would drop") {
  const Shape scores{2, 3, 9, 21};
  const double p = 0.4;
  manual_seed(3);
  const auto kept = dropout(ones(scores), {p}).to_vector();
  std::vector<double> identity(size_t(2 * 3 * 21 * 21), 0.0);
  for (size_t i = 0; i < identity.size(); ++i) identity[i] = i / 21 % 21 == i % 21;
  for (Kind kind : {Kind::fused, Kind::reference}) {
    const Tensor values = tensor(identity, {2, 3, 21, 21}, DType::f32);
    manual_seed(3);
    const auto weights = scaled_dot_product_attention(zeros({2, 3, 9, 4}), zeros({2, 3, 21, 4}),
                                                      values, {}, {.dropout = p, .kernel = kind})
                             .to_vector();
    REQUIRE(weights.size() == kept.size());
    for (size_t i = 0; i < kept.size(); ++i)
      CHECK(weights[i] == doctest::Approx(kept[i] / 21).epsilon(1e-6));
  }
}

TEST_CASE("a NaN in one query stays in its row, and infinite scores are not hidden") {
  for (Kind kind : {Kind::fused, Kind::reference}) {
    Tensor q = noise({1, 40, 8}, 1).to(DType::f32), k = noise({1, 40, 8}, 2).to(DType::f32);
    q.slice(1, 3, 4).copy_(full({1, 1, 8}, NAN));
    q.slice(1, 5, 6).copy_(full({1, 1, 8}, INFINITY));
    const auto y = scaled_dot_product_attention(q, k, k, {}, {.kernel = kind}).to_vector();
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 8 == 3 || i / 8 == 5));
  }
}

TEST_CASE("attention refuses heads that do not divide and a dropout of 1") {
  Tensor q = ones({1, 6, 4, 8}), k = ones({1, 4, 4, 8});
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, k, k), doctest::Contains("a divisor of q's"),
                       Error);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(q, q, q, {}, {.dropout = 1}),
                       doctest::Contains("[0, 1), not 1"), Error);
}

TEST_CASE("a head that is not finite changes no bit of the others, forward or backward") {
  auto run = [](double poison, Kind kernel) {
    auto head = [](uint64_t stream, Index heads) {
      return noise({1, heads, 70, 8}, stream).to(DType::f32);
    };
    Tensor q = head(1, 4), k = head(2, 2), v = head(3, 2);
    k.select(1, 1).select(1, 69).fill_(poison), v.select(1, 1).select(1, 3).fill_(poison);
    q.set_requires_grad(), k.set_requires_grad(), v.set_requires_grad();
    const Tensor y = scaled_dot_product_attention(q, k, v, {}, {.causal = true, .kernel = kernel});
    y.backward(q.detach());
    return std::array{y.detach(), q.grad(), k.grad(), v.grad()};
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const double poison : {std::nan(""), inf, -inf}) {
    CAPTURE(poison);
    const auto clean = run(0.25, Kind::fused), mixed = run(poison, Kind::fused),
               formula = run(poison, Kind::reference);
    for (size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      const Index half = clean[i].size(1) / 2;
      CHECK(mixed[i].slice(1, 0, half).to_vector() == clean[i].slice(1, 0, half).to_vector());
      const auto a = mixed[i].slice(1, half, 2 * half).to_vector(),
                 b = formula[i].slice(1, half, 2 * half).to_vector();
      const auto same = [](double x, double y) { return x == y || (x != x && y != y); };
      CHECK(std::equal(a.begin(), a.end(), b.begin(), same));
      CHECK(std::any_of(a.begin(), a.end(), [](double x) { return std::isnan(x); }));
    }
  }
}
