// Matrix products and attention, in the shapes that Transformers have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "minim/core/gemm.h"
#include "minim/models/init.h"
#include "minim/ops/functional.h"
#include "minim/tools/bench.h"

namespace minim::bench {
namespace {

struct Product {
  Index batch, m, k, n;
};
constexpr Product kProducts[] = {
    {1, 768, 128, 384},
    {1, 768, 128, 512},
    {1, 768, 512, 128},
    {1, 2048, 384, 1536},
    {1, 1024, 1024, 1024},
    {1, 512, 768, 3072},  // of two GPTs, and square
    {48, 64, 32, 64},     // of attention's heads
    // tokens one by one, for as many sequences
    {1, 1, 512, 512},
    {1, 2, 512, 512},
    {1, 4, 512, 512},
    {1, 8, 512, 512},
};

Tensor random(const Shape& shape, DType dtype) {
  return models::init::uniform(empty(shape), -1, 1).to(dtype);
}

Body product(const Product& p, DType dtype) {
  const Tensor a = random({p.batch, p.m, p.k}, dtype), b = random({p.batch, p.k, p.n}, dtype),
               c = empty({p.batch, p.m, p.n}, dtype);
  std::vector<GemmArgs> all;
  for (Index i = 0; i < p.batch; ++i)
    all.push_back({.m = p.m,
                   .n = p.n,
                   .k = p.k,
                   .a = {a.select(0, i).data(), dtype, p.k},
                   .b = {b.select(0, i).data(), dtype, p.n},
                   .c = c.select(0, i).data(),
                   .c_dtype = dtype,
                   .c_row_stride = p.n});
  return {.run = [a, b, c, all] { gemm_batched(all); },
          .flops = 2.0 * double(p.batch * p.m * p.k * p.n)};
}

struct Heads {
  Index batch, heads, time, width;
  bool nan = false;  // all numbers, as in a run that went NaN: such heads take another way
};
constexpr Heads kHeads[] = {
    {12, 4, 64, 32}, {8, 6, 256, 64}, {1, 8, 1024, 64}, {8, 6, 256, 64, true}};

Body attention(const Heads& h, DType dtype, Direction way) {
  std::vector<Tensor> xs;
  for (int i = 0; i < 3; ++i) xs.push_back(random({h.batch, h.heads, h.time, h.width}, dtype));
  for (Tensor& x : xs)
    if (h.nan) x.fill_(std::numeric_limits<double>::quiet_NaN());
  xs.emplace_back();  // no mask
  const double pairs = double(h.batch * h.heads * h.time) * double(h.time + 1) / 2;
  const double products = way == Direction::forward ? 2 : 5;
  return body_of(Op::scaled_dot_product_attention, xs,
                 Attrs(op::ScaledDotProductAttention::Attrs{.causal = true}), way,
                 2 * products * pairs * double(h.width));
}

}  // namespace

std::vector<Set> gemm_sets(int threads) {
  std::vector<Set> sets;
  for (int n = 1; n <= threads; n += std::max(1, threads - 1))
    for (const Product& p : kProducts) {
      Set& set = sets.emplace_back();
      const std::string shape =
          fmt::format("{}{},{},{}", p.batch > 1 ? fmt::format("{}x", p.batch) : "", p.m, p.k, p.n);
      for (DType dtype : kDTypesMeasured)
        set.push_back({fmt::format("gemm/{}/t{}/{}", shape, n, name_of(dtype)), n,
                       [&p, dtype] { return product(p, dtype); }});
    }
  return sets;
}

std::vector<Set> attention_sets(int threads) {
  std::vector<Set> sets;
  for (const Heads& h : kHeads)
    for (Direction way : {Direction::forward, Direction::backward}) {
      Set& set = sets.emplace_back();
      for (DType dtype : kDTypesMeasured)
        set.push_back(
            {fmt::format("attention/{},{},{},{}{}/{}/{}", h.batch, h.heads, h.time, h.width,
                         h.nan ? ",NaN" : "", way == Direction::forward ? "forward" : "backward",
                         name_of(dtype)),
             threads, [&h, dtype, way] { return attention(h, dtype, way); }});
    }
  return sets;
}

std::vector<Set> overhead_sets(int) {
  const auto leaf = [] { return full({}, 1.5).set_requires_grad(); };
  const auto forward = [] { return Body{[a = full({}, 1.5), b = full({}, 2.5)] { a + b; }}; };
  const auto recorded = [leaf] { return Body{[a = leaf(), b = leaf()] { a + b; }}; };
  const auto both = [leaf] { return Body{[a = leaf(), b = leaf()] { (a + b).backward(); }}; };
  return {{{"overhead/scalar add/no gradient", 1, forward}},
          {{"overhead/scalar add/recorded", 1, recorded}},
          {{"overhead/scalar add/forward and backward", 1, both}}};
}

}  // namespace minim::bench
