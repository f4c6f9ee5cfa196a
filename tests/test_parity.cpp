#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "minim/tests/parity.h"

namespace minim::test {

TEST_CASE("parity with PyTorch: every op is within its bound of f64" *
          doctest::test_suite("host")) {
  std::vector<std::string> findings;
  CHECK(compare_ops(findings).size() > 900);
  for (const std::string& f : findings) FAIL_CHECK(f);
}

TEST_CASE(
    "parity with PyTorch: errors over 4096 and 65536 numbers are 8 epsilons or twice PyTorch's") {
  std::vector<std::string> findings;
  CHECK(compare_long_sums(findings).size() > 400);
  for (const std::string& f : findings) FAIL_CHECK(f);
}

TEST_CASE("parity with PyTorch: logits and gradients and 20 AdamW losses of a GPT" *
          doctest::test_suite("host")) {
  std::vector<std::string> findings;
  CHECK(compare_gpt(findings).size() == 4 * 30);
  for (const std::string& f : findings) FAIL_CHECK(f);
}

TEST_CASE("parity with PyTorch: errors are in epsilons of the dtype") {
  Errors e = errors_of({1 + 0x1p-11, 512, 0}, {1, 512, 0}, DType::f16);
  CHECK(e.relative == 0.5);
  CHECK(e.absolute == 0.5 / 512);
  e = errors_of({INFINITY, 0x1p-11}, {1e6, 0}, DType::f16);  // overflow is no error of the op
  CHECK(e.relative == 0);
  CHECK(e.absolute > 0);
}

// Another machine has other last bits: the page is made on request, and checked for its rows only.
TEST_CASE("parity with PyTorch: docs/accuracy.md has a line for every tensor" *
          doctest::test_suite("host")) {
  std::vector<std::string> findings;
  const AccuracyTables all{compare_ops(findings), compare_long_sums(findings),
                           compare_gpt(findings)};
  if (const char* path = std::getenv("MINIM_ACCURACY")) std::ofstream(path) << accuracy_page(all);
  std::ifstream file(std::string(MINIM_SOURCE) + "/docs/accuracy.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  for (const auto* part : {&all.ops, &all.long_sums, &all.gpt})
    for (const Comparison& c : *part) {
      const std::string what = c.what.substr(0, c.what.find('/'));
      const std::string line = "| " + what + " | " + c.tensor + " |";
      CHECK_MESSAGE(page.find(line) != page.npos, line);
    }
}

}  // namespace minim::test
