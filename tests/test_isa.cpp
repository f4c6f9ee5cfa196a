#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "minim/core/cpu/isa.h"
#include "minim/core/half.h"
#include "minim/ops/functional.h"
#include "minim/testing/op_trial.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

TEST_CASE("every ISA widens all 65536 patterns of both 16-bit types as half.h does") {
  std::vector<uint16_t> all(65536);
  for (size_t u = 0; u < all.size(); ++u) all[u] = uint16_t(u);
  std::vector<float> f(all.size()), b(all.size());
  for (int i = 0; i < kIsas; ++i) {
    const IsaKernels* kernels = isa_at(i);
    if (!kernels) continue;
    INFO(kernels->name);
    kernels->widen_f16(all.data(), f.data(), 65536);
    kernels->widen_bf16(all.data(), b.data(), 65536);
    int wrong = 0;
    for (size_t u = 0; u < all.size(); ++u) {
      wrong += bits<uint32_t>(f[u]) != bits<uint32_t>(float(f16::from_bits(all[u])));
      wrong += bits<uint32_t>(b[u]) != bits<uint32_t>(float(bf16::from_bits(all[u])));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "every ISA narrows as half.h does: ties, subnormals, overflow, NaN and a grid over all bit "
    "patterns") {
  std::vector<float> x;
  for (float v : {0.0f,
                  6e-8f,
                  65504.0f,
                  65519.996f,
                  65520.0f,
                  65536.0f,
                  0x1p-24f,
                  0x1p-25f,
                  0x1.000002p-25f,
                  0x1p-26f,
                  0x1p-14f,
                  0x1.ffep-15f,
                  0x1.fffp-15f,
                  1.0f,
                  0x1.002p0f,
                  0x1.006p0f,
                  0x1.01p0f,
                  0x1.03p0f,
                  1e-40f,
                  0x1p-149f,
                  0x1p-133f,
                  0x1p-134f,
                  3.39e38f,
                  3.4028235e38f,
                  std::numeric_limits<float>::infinity()})
    x.push_back(v), x.push_back(-v);
  for (uint32_t nan :
       {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc12345u, 0x7f80ffffu})
    x.push_back(bits<float>(nan));
  for (uint32_t payload = 1; payload < 0x800000; payload += 13)
    x.push_back(bits<float>((payload << 31) | 0x7f800000u | payload));
  for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 2053) x.push_back(bits<float>(uint32_t(u)));
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) x.push_back(bits<float>(uint32_t(random())));

  std::vector<uint16_t> f(x.size()), b(x.size());
  for (int i = 0; i < kIsas; ++i) {
    const IsaKernels* kernels = isa_at(i);
    if (!kernels) continue;
    INFO(kernels->name);
    kernels->narrow_f16(x.data(), f.data(), int64_t(x.size()));
    kernels->narrow_bf16(x.data(), b.data(), int64_t(x.size()));
    int wrong = 0;
    for (size_t u = 0; u < x.size(); ++u) wrong += f[u] != f16(x[u]).u || b[u] != bf16(x[u]).u;
    CHECK(wrong == 0);
    for (int64_t n = 1; n < 40; ++n) {  // tails
      std::vector<uint16_t> part(size_t(n) + 1, 0xabcd);
      kernels->narrow_bf16(x.data() + 7, part.data(), n);
      CHECK(std::memcmp(part.data(), b.data() + 7, size_t(n) * 2) == 0);
      CHECK(part.back() == 0xabcd);
    }
#if defined(__x86_64__)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040u);  // denormals are flushed: those that are only moved stay
    std::vector<uint16_t> flushed(x.size());
    kernels->narrow_bf16(x.data(), flushed.data(), int64_t(x.size()));
    _mm_setcsr(mode);
    CHECK(flushed == b);
#endif
  }
}

TEST_CASE("every ISA this CPU has multiplies whole numbers to the same bits, in f32 and f64") {
  auto check = []<class A>(GemmKernels<A> IsaKernels::*member) {
    constexpr int64_t m = 29, n = 45, k = 19;
    for (int i = 0; i < kIsas; ++i) {
      const IsaKernels* kernels = isa_at(i);
      if (!kernels) continue;
      INFO(kernels->name);
      const GemmKernels<A>& g = kernels->*member;
      std::vector<A> a(m * k), b(k * n), packed_a((m + g.rows) * k), packed_b((n + g.cols) * k),
          c(m * n, A(1));
      for (int64_t e = 0; e < m * k; ++e) a[size_t(e)] = A(e % 7 - 3);
      for (int64_t e = 0; e < k * n; ++e) b[size_t(e)] = A(e % 5 - 2);
      g.pack(a.data(), k, 1, m, k, g.rows, packed_a.data());
      g.pack(b.data(), 1, n, n, k, g.cols, packed_b.data());
      g.multiply(m, n, k, packed_a.data(), packed_b.data(), {c.data(), n, true});
      int wrong = 0;
      for (int64_t r = 0; r < m; ++r)
        for (int64_t j = 0; j < n; ++j) {
          A sum = 1;
          for (int64_t e = 0; e < k; ++e) sum += a[size_t(r * k + e)] * b[size_t(e * n + j)];
          wrong += c[size_t(r * n + j)] != sum;
        }
      CHECK(wrong == 0);
    }
  };
  check(&IsaKernels::f32);
  check(&IsaKernels::f64);
}

TEST_CASE("every ISA packs 16-bit operands to the bits that widening and then packing gives") {
  constexpr int64_t kLines = 77, kDepth = 141;
  std::vector<uint16_t> from(size_t(kLines * kDepth));
  std::mt19937 random(7);
  for (uint16_t& u : from) u = uint16_t(random());
  for (int i = 0; i < kIsas; ++i) {
    const IsaKernels* kernels = isa_at(i);
    if (!kernels) continue;
    for (bool brain : {false, true}) {
      std::vector<float> wide(from.size());
      (brain ? kernels->widen_bf16 : kernels->widen_f16)(from.data(), wide.data(),
                                                         int64_t(from.size()));
      for (float& x : wide)  // what a NaN's payload is does not matter, nor that F16C quiets it
        if (std::isnan(x)) x = std::copysign(std::numeric_limits<float>::quiet_NaN(), x);
      for (int64_t width : {kernels->f32.rows, kernels->f32.cols})
        for (bool side_by_side : {false, true}) {
          INFO(kernels->name, brain ? " bf16 " : " f16 ", width, side_by_side);
          const int64_t stride = side_by_side ? 1 : kDepth, k_stride = side_by_side ? kLines : 1;
          std::vector<float> expected(size_t((kLines + width) * kDepth)), packed(expected.size());
          kernels->f32.pack(wide.data(), stride, k_stride, kLines, kDepth, width, expected.data());
          (brain ? kernels->pack_bf16 : kernels->pack_f16)(from.data(), stride, k_stride, kLines,
                                                           kDepth, width, packed.data());
          for (float& x : packed)
            if (std::isnan(x)) x = std::copysign(std::numeric_limits<float>::quiet_NaN(), x);
          CHECK(std::memcmp(packed.data(), expected.data(), packed.size() * sizeof(float)) == 0);
          int wrong = 0;
          for (int64_t line = 0; line < kLines; ++line)
            for (int64_t k = 0; k < kDepth; ++k) {
              const float x = wide[size_t(line * stride + k * k_stride)];
              const size_t at = size_t(line / width * width * kDepth + k * width + line % width);
              wrong += bits<uint32_t>(expected[at]) != bits<uint32_t>(x);
            }
          CHECK(wrong == 0);
        }
    }
  }
}

TEST_CASE("packed pairs of bf16 hold the first of two in the high half, and tell the smallest") {
  constexpr int64_t kLines = 45;
  for (int i = 0; i < kIsas; ++i) {
    const IsaKernels* kernels = isa_at(i);
    if (!kernels || !kernels->pairs) continue;
    std::mt19937 random(5);
    for (int64_t depth : {1, 2, 7, 64, 141, 300})
      for (int64_t width : {kernels->f32.rows, kernels->f32.cols})
        for (bool side_by_side : {false, true}) {
          INFO(depth, " ", width, " ", side_by_side);
          std::vector<uint16_t> from(size_t(kLines * depth));
          for (uint16_t& u : from) u = uint16_t(random() | 0x40);
          from[from.size() / 2] = 0x8003;
          from[from.size() / 3] = 0x8000;  // zeros do not count
          const int64_t stride = side_by_side ? 1 : depth, k_stride = side_by_side ? kLines : 1;
          const int64_t pairs = (depth + 1) / 2;
          std::vector<uint32_t> packed(size_t((kLines + width) * pairs));
          const uint32_t least = kernels->pairs->pack(from.data(), stride, k_stride, kLines, depth,
                                                      width, packed.data());
          CHECK(least == 3u);
          int wrong = 0;
          for (int64_t line = 0; line < kLines; ++line)
            for (int64_t k = 0; k < 2 * pairs; ++k) {
              const uint32_t pair =
                  packed[size_t(line / width * width * pairs + k / 2 * width + line % width)];
              const uint32_t missing = width == kernels->f32.rows ? 0 : 0x8000;
              const uint32_t x = k < depth ? from[size_t(line * stride + k * k_stride)] : missing;
              wrong += (k % 2 ? pair & 0xffff : pair >> 16) != x;
            }
          CHECK(wrong == 0);
        }
    const std::vector<uint16_t> zeros(8, 0x8000);
    uint32_t packed[64];
    CHECK(kernels->pairs->pack(zeros.data(), 8, 1, 1, 8, kernels->f32.rows, packed) == 0x10000u);
  }
}

namespace {

/// FNV-1a over the bytes, with every NaN as one.
uint64_t digest(const Outcome& outcome, int results, uint64_t hash) {
  auto add = [&](const Tensor& x) {
    if (!x.defined()) return;
    for (double v : x.to_vector()) {
      const uint64_t word = std::isnan(v) ? ~uint64_t{0} : bits<uint64_t>(v);
      for (int i = 0; i < 64; i += 8) hash = (hash ^ (word >> i & 255)) * 0x100000001b3u;
    }
  };
  for (int k = 0; k < results; ++k) add(outcome.out[size_t(k)]);
  for (const Tensor& g : outcome.grads) add(g);
  return hash;
}

/// The bits of a row, forward and backward, in the dtypes whose loops are compiled per ISA: on its
/// examples as they are, and on larger ones with numbers at the ends of the range.
uint64_t digest(const OpRow& row) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr double ends[] = {0.0, -0.0, kInf, -kInf, NAN, 6e4, -6e4, 1e-40, 3e38, 1e-7, -1, 88};
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Trial& small : trials(row))
    for (bool large : {false, true}) {
      Trial trial = large ? scaled_up(small) : small;
      if (large)
        for (size_t k = 0; k < trial.values.size(); ++k)
          if (row.operands[k].accepts == Accepts::floating)
            for (size_t i = 0; i < trial.values[k].size(); i += 3)
              trial.values[k][i] = ends[(i / 3 + k) % std::size(ends)];
      for (DType d : {DType::f32, DType::f16, DType::bf16}) {
        const std::vector<Tensor> xs = trial.operands(d, row.differentiable);
        hash = digest(forward_backward(trial, row, xs, xs), row.returned, hash);
      }
    }
  return hash;
}

/// The lines that this very test prints in a process of its own on that ISA.
std::string lines_on(const char* name) {
  const std::string command = std::string("MINIM_ISA=") + name + " MINIM_PRINT_DIGESTS=1 '" +
                              std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --test-case='every ISA this CPU has gives the same bits*'";
  std::string lines;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  char line[256];
  while (std::fgets(line, sizeof line, pipe))
    if (std::string(line).starts_with("row ")) lines += line;
  CHECK(pclose(pipe) == 0);
  return lines;
}

}  // namespace

TEST_CASE("every ISA this CPU has gives the same bits in every row but those of matrix products") {
  if (std::getenv("MINIM_PRINT_DIGESTS")) {
    for (const OpRow* row : all_ops())
      if (row->cast != Cast::lower)  // fused multiply-adds, where there are some
        std::printf("row %s %016llx\n", row->name, (unsigned long long)digest(*row));
    return;
  }
  const std::string base = lines_on("base");
  CHECK(std::count(base.begin(), base.end(), '\n') > 60);
  for (int i = 1; i < kIsas; ++i)
    if (const IsaKernels* kernels = isa_at(i)) {
      INFO(kernels->name);
      CHECK(lines_on(kernels->name) == base);
    }
}

TEST_CASE("what becomes of a number does not depend on how many stand beside it") {
  const auto outcome = [](const OpRow& row, const Tensor& x, const Attrs& attrs) {
    const Tensor leaf = x.clone().set_requires_grad(), y = call(row, std::array{leaf}, attrs)[0];
    y.backward(full(y.shape(), 0.7, y.dtype()));
    return std::array{y, leaf.grad()};
  };
  for (const OpRow* row : {&Op::gelu, &Op::tanh, &Op::sigmoid, &Op::silu, &Op::softplus, &Op::log})
    for (DType d : {DType::f32, DType::f16, DType::bf16})
      for (const Example& example : row->examples()) {
        INFO(row->name, " ", name_of(d));
        const Tensor x = (noise({1234}) * 9.0).to(d);
        const auto many = outcome(*row, x, example.attrs);
        int wrong = 0;
        for (Index i = 0; i < x.numel(); i += 7) {
          const auto alone = outcome(*row, x.slice(0, i, i + 1), example.attrs);
          for (size_t k = 0; k < 2; ++k) {
            const double a = alone[k].item(), b = many[k].slice(0, i, i + 1).item();
            wrong += a != b && !(std::isnan(a) && std::isnan(b));
          }
        }
        CHECK(wrong == 0);
      }
}
