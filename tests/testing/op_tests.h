// tests/testing/op_tests.h -- the generated tests of a row as doctest cases, for this project's
// table and for rows of your own program: one line `MINIM_OP_TESTS(softsign, softsign_row)` in a
// test source, which links minim::testing and doctest (https://github.com/doctest/doctest).
#pragma once
#include <doctest/doctest.h>

#include <algorithm>

#include "minim/testing/op_checks.h"

namespace minim::test {

/// Fails the running test case with the first findings; `file` and `line` are where the row is.
inline void expect_none(const Findings& findings, const char* file = "", int line = 0) {
  const std::string row = line ? file + (":" + std::to_string(line)) + " " : "";
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(kShown, findings.size()); ++i) FAIL_CHECK(row, findings[i]);
  if (findings.size() > kShown) FAIL_CHECK("... and ", findings.size() - kShown, " more");
  CHECK(findings.empty());
}

}  // namespace minim::test

/// Ten test cases, "op NAME: ...". A macro, since doctest takes a case's name only as a literal.
#define MINIM_OP_TESTS(name, row)                                                              \
  MINIM_OP_TEST(name, "gradient matches finite differences (f64)", check_gradients, row)       \
  MINIM_OP_TEST(name, "every dtype is the f64 result rounded once", check_dtypes, row)         \
  MINIM_OP_TEST(name, "autocast follows the row", check_autocast, row)                         \
  MINIM_OP_TEST(name, "strides do not change a bit", check_layouts, row)                       \
  MINIM_OP_TEST(name, "random shapes and views are what each index gives alone", check_shapes, \
                row)                                                                           \
  MINIM_OP_TEST(name, "backward reads what it saves, all of it and nothing else", check_saves, \
                row)                                                                           \
  MINIM_OP_TEST(name, "no gradient is lost to a write in place", check_in_place, row)          \
  MINIM_OP_TEST(name, "threads do not change a bit", check_threads, row)                       \
  MINIM_OP_TEST(name, "what fits the dtype is right at every exponent", check_range, row)      \
  MINIM_OP_TEST(name, "the row says what it must", check_description, row)
#define MINIM_OP_TEST(name, what, check, row)                              \
  TEST_CASE("op " #name ": " what) {                                       \
    minim::test::expect_none(minim::test::check(row), __FILE__, __LINE__); \
  }
