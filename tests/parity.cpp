#include "minim/tests/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <map>
#include <sstream>
#include <thread>

#include "minim/core/cpu/isa.h"
#include "minim/testing/op_checks.h"

namespace minim::test {

std::vector<double> recurrence(Index count, uint32_t seed) {
  std::vector<double> values(size_t(count), 0);
  for (double& v : values) v = double((seed = seed * 1664525u + 1013904223u) >> 16) / 65536;
  return values;
}

Errors errors_of(const std::vector<double>& got, const std::vector<double>& exact, DType unit) {
  const double eps = std::ldexp(1.0, 1 - info(unit).digits),
               normal = info(unit).tiniest * std::ldexp(1.0, info(unit).digits - 1);
  auto fits = [&](double v) { return std::fabs(v) <= info(unit).max; };
  double largest = normal;
  for (double v : exact)
    if (fits(v)) largest = std::max(largest, std::fabs(v));
  Errors found;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (!fits(exact[i])) continue;
    const double size = std::fabs(exact[i]), error = std::fabs(got[i] - exact[i]) / eps;
    found.absolute = std::max(found.absolute, error / largest);
    if (size >= largest / 1000) found.relative = std::max(found.relative, error / size);
  }
  return found;
}

models::SafeTensors golden(const char* file) {
  return models::SafeTensors::read(std::string(MINIM_SOURCE) + "/tests/golden/" + file);
}

std::vector<double> values_of(const models::SafeTensors& file, const std::string& name) {
  const models::Blob* blob = file.find(name);
  if (!blob) fail("the golden file has no ", name);
  Tensor t = empty(Shape(std::span<const Index>(blob->shape)), blob->dtype);
  std::memcpy(t.data(), blob->bytes.data(), blob->bytes.size());
  return t.to_vector();
}

namespace {

constexpr const char* kIntroduction = R"(# Accuracy: minim beside PyTorch

The largest errors against f64, in units of the dtype's epsilon (f32 2^-23, f16 2^-10, bf16 2^-7): a
result that is rounded once is off by up to 0.5. Each cell is minim's error and PyTorch's.

- *absolute*: the largest error in the tensor over its largest value.
- *relative*: the largest error of an element over its own value, among elements of at least a
  thousandth of the largest.

Inputs are stored in the dtype, and PyTorch's f64 results for those very inputs are the reference. y
is the result, d_x the gradient with regard to x. minim keeps gradients of 16-bit leaves in f32 and
returns the losses of 16-bit operands in f32, hence its numbers near 0 there. Where backward reads
the result (exp, sqrt, tanh, sigmoid, softmax ...), a 16-bit result was rounded before it was read,
here and there, and the errors of the gradient are mostly that rounding. For softmax that is at most four
units of each probability times the largest |g|, and where many small probabilities are rounded in one
direction their gradients are off in one direction, too. log_softmax reads no result: its backward makes
the probabilities of its operand and two fp32 numbers per row, since the rounding of a logarithm near
-11.5 would be 0.4 % of a probability in f16, and 3 % in bf16. Elements that the dtype
cannot hold in f64's result are left out; the inf of exp wide in f16 is a gradient that would fit, made
of a result that did not.

The bound that `tests/test_parity.cpp` holds for every element: minim's error is at most PyTorch's, or
half an ulp plus c * 2^-24 times the condition, whichever is larger; `ops/ops.def` has each op's c, and
a gradient has one more. The condition of a number y that is made of numbers x is |y| + sum |x dy/dx|:
relative errors of eps in everything that goes in make eps times that of y. For a gradient, what goes in
are the operands and the incoming gradient. Where backward reads a rounded result, what that rounding
makes of the gradient is added. A slope dy/dx that is not 0 counts as 1 at least, of a result in its
operands and of a gradient in the incoming one, so that gradients which are differences of numbers near
1, as those of softmax, are held to an absolute error. minim's f64 is held to PyTorch's in the same way,
with c + 8 and 2^-53; the GPT's tensors to a fixed number of epsilons.

Beside PyTorch's inputs, which are around 1, each row is tested at every exponent (`op NAME: what fits
the dtype is right at every exponent`): operands of +-2^e, neighbours of those and numbers between, from
the smallest subnormal up to a quarter of the largest number, of one magnitude and mixed, in f32, bf16
and f16 against f64. A result or gradient that its dtype holds is then within half an ulp and c * 2^-24
times the condition, here without that 1, so the tails of gelu, silu and sigmoid are held to their own
size: an intermediate that overflows or vanishes is an error. What is allowed:

- Below 2^-126 numbers are 2^-149 apart (f64: 2^-1074): errors are held to that, and a subnormal operand
  counts with it.
- Results of rows that sum are held to the largest condition in their tensor, and may be infinite where
  an addend does not fit. Attention, which multiplies operands on the way, is held for scores that fp32
  tells apart (exponents up to 8).
- Where backward reads a rounded result (exp, sqrt, tanh, sigmoid, pow, rsqrt, softmax), the
  exact slope is that of the result as it was stored. So tanh's and sigmoid's slopes are 0 where the result
  rounds to 1: from 9.1 and 17.4 on in f32, from 3.5 and 6.3 in bf16, from 4.6 and 8.4 in f16. Those of
  gelu and silu read x and have no such end.

Of rows with one operand that work element by element, the results of all 65536 numbers of f16 and of
bf16 are within an ulp of the exact ones, subnormals included; the largest error is that of the one
rounding, half an ulp, but for a few ties. Pointwise rows hold the same in f64 against long double
(`tests/test_range.cpp`), with c + 8 and 2^-53.
)";

constexpr const char* kLong = R"(
## Long sums

Sums of products do not err more as they get longer: k is cut into blocks of 256, each one chain of
multiply-adds; runs of 16 of their sums are added, runs of 16 of those, and so on (`core/gemm.h`). Of
numbers in [0, 1) the largest error of an element, over its value and in units of 2^-24, was as below;
minim and one chain by a model of the rule. On other draws the library gave 16, 7.5, 3.5, 2.7 and 3.0.

| k | 256 | 512 | 4096 | 65536 | 2^20 |
|---|---|---|---|---|---|
| minim | 13 | 7.8 | 4.0 | 2.8 | 3.1 |
| PyTorch (blocks of 384, in one chain) | 14 | 11 | 6.7 | 6.1 | 18 |
| one chain | 13 | 20 | 54 | 202 | 3481 |

Attention over 4096 keys errs by 6.4 (PyTorch 6.0). `tests/test_gemm_sums.cpp` holds such bounds for
f32, f64, f16 and bf16, for gradients, attention and convolution.

Results and gradients of 4096 and of 65536 numbers, at most 8 epsilons or twice PyTorch's. Operands and
incoming gradients are made as above, and the reference is minim's f64. Elements that are sums of both
signs have large errors over their own value wherever they come out small, hence absolute errors alone.
)";

constexpr const char* kEnds = R"(
## The ends of the range

The largest error of a result or gradient over what is allowed at its exponent (see above), 1 being
all of it: in the lowest eighth of the dtype's exponents, subnormal numbers included, between, and in
the highest eighth. Rows that are not listed are exact everywhere.
)";

constexpr const char* kModel = R"(
## A GPT of 2 layers

The same weights and tokens: logits and gradients of the first step, and the losses of 20 steps of
AdamW. bf16 and f16 are autocast over f32 weights, in minim by the policy `torch`, in PyTorch by its
list for the CPU; in f16 the loss is scaled by 1024. The column f64 is minim's f64 against PyTorch's,
which is the reference. AdamW's eps is 1e-5: with 1e-8 the first step divides a gradient that is all
but 0 by its own size, and its rounding in f32 moved
the largest error of the losses to 95 epsilons in minim and 18 in PyTorch (in f64, a random change
of the weights by half an epsilon of f32 moves them by up to 61).
)";

std::string cell(const Errors& minim, const Errors& torch, double Errors::*which) {
  std::ostringstream text;
  text << std::setprecision(2) << minim.*which << " / " << torch.*which;
  return text.str();
}

/// One line per tensor; the dtypes side by side.
void table(std::ostringstream& page, const std::vector<Comparison>& all,
           std::initializer_list<DType> dtypes) {
  std::map<std::pair<std::string, std::string>, std::map<DType, const Comparison*>> lines;
  for (const Comparison& c : all) lines[{c.what, c.tensor}][c.dtype] = &c;
  std::string rule = "\n|---|---|";
  page << "\n| what | tensor |";
  for (const char* kind : {" absolute |", " relative |"})
    for (DType d : dtypes) page << " " << name_of(d) << kind, rule += "---|";
  page << rule << "\n";
  for (const auto& [key, by_dtype] : lines) {
    page << "| " << key.first << " | " << key.second << " |";
    for (auto which : {&Errors::absolute, &Errors::relative})
      for (DType d : dtypes) {
        const Comparison& c = *by_dtype.at(d);
        page << " " << cell(c.minim, c.torch, which) << " |";
      }
    page << "\n";
  }
}

/// One line per tensor; its dtypes and numbers of addends side by side.
void long_table(std::ostringstream& page, const std::vector<Comparison>& all) {
  std::map<std::pair<std::string, std::string>, std::map<std::pair<DType, int>, Errors[2]>> lines;
  constexpr int kAddends[] = {4096, 65536};
  constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
  for (const Comparison& c : all) {
    const size_t cut = c.what.find('/');
    auto& errors =
        lines[{c.what.substr(0, cut), c.tensor}][{c.dtype, std::stoi(c.what.substr(cut + 1))}];
    errors[0] = c.minim, errors[1] = c.torch;
  }
  page << "\n| what | tensor |";
  for (DType d : kDTypes)
    for (int n : kAddends) page << " " << name_of(d) << " " << n << " |";
  page << "\n|---|---|---|---|---|---|---|---|\n";
  for (auto& [key, by_dtype] : lines) {
    page << "| " << key.first << " | " << key.second << " |";
    for (DType d : kDTypes)
      for (int n : kAddends) {
        const auto& errors = by_dtype[{d, n}];
        page << " " << cell(errors[0], errors[1], &Errors::absolute) << " |";
      }
    page << "\n";
  }
}

/// One line per row of the op table that rounds.
void ends_table(std::ostringstream& page) {
  constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
  page << "\n| op |";
  for (DType d : kDTypes)
    for (const char* part : {"lowest", "between", "highest"})
      page << " " << name_of(d) << " " << part << " |";
  page << "\n|---|---|---|---|---|---|---|---|---|---|\n" << std::setprecision(2);
  for (const OpRow* row : all_ops()) {
    RangeShares shares = range_shares(*row);
    if (std::ranges::none_of(shares, [](const auto& dtype_and_share) {
          const RangeShare& s = dtype_and_share.second;
          return s.lowest + s.between + s.highest > 0;
        }))
      continue;
    page << "| " << row->name << " |";
    for (DType d : kDTypes)
      for (double RangeShare::*part :
           {&RangeShare::lowest, &RangeShare::between, &RangeShare::highest})
        page << " " << shares[d].*part << " |";
    page << "\n";
  }
}

/// "f32: 200 of 240 tensors ..."
void counts(std::ostringstream& page, const std::vector<Comparison>& all) {
  for (DType d : {DType::f32, DType::f16, DType::bf16}) {
    int tensors = 0, nearer = 0, farther = 0;
    for (const Comparison& c : all) {
      if (c.dtype != d) continue;
      ++tensors;
      nearer += c.minim.absolute < c.torch.absolute;
      farther += c.minim.absolute > c.torch.absolute;
    }
    page << "- " << name_of(d) << ": by absolute error, of " << tensors
         << " tensors minim is nearer to f64 in " << nearer << ", PyTorch in " << farther
         << ", and they are equal in " << tensors - nearer - farther << ".\n";
  }
}

}  // namespace

std::string accuracy_page(const AccuracyTables& all) {
  const models::Metadata from = golden("ops.safetensors").metadata();
  std::ostringstream page;
  page << kIntroduction << "\nPyTorch " << from.at("torch") << " on the CPU (" << from.at("cpu")
       << "), minim's `" << isa().name << "` kernels, both on an x86-64 machine of "
       << std::thread::hardware_concurrency()
       << " cores. Made by\n\n"
          "    tools/make_goldens.py      # tests/golden/, where PyTorch is at hand\n"
          "    MINIM_ACCURACY=docs/accuracy.md build/release/minim_tests -tc='parity*'\n\n"
          "The last bits differ between instruction sets, so the numbers here are those of one "
          "machine; the bound holds with MINIM_ISA=base, v3, v4 and v4-bf16.\n\n## Ops\n\n";
  counts(page, all.ops);
  page << "\nMost of the difference in f16 and bf16 is that minim does not round gradients of "
          "leaves "
          "and losses to 16 bits.\n";
  table(page, all.ops, {DType::f32, DType::f16, DType::bf16});
  page << kLong;
  long_table(page, all.long_sums);
  page << kEnds;
  ends_table(page);
  page << kModel;
  table(page, all.gpt, {DType::f64, DType::f32, DType::bf16, DType::f16});
  return page.str();
}

}  // namespace minim::test
