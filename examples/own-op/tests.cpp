// The tests that every row of minim gets, for this program's row; doctest brings main.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <minim/testing/op_tests.h>

#include "squareplus.h"

MINIM_OP_TESTS(squareplus, squareplus_row)

TEST_CASE("a scope gives the row another cast") {
  using namespace minim;
  const Tensor x = tensor({-1, 0, 2}, DType::f16);
  {
    amp::Autocast on(DType::f16);
    CHECK(squareplus(x).dtype() == DType::f16);
  }
  amp::Autocast on(DType::f16, {{squareplus_row, Cast::fp32}});
  CHECK(squareplus(x).dtype() == DType::f32);
}

TEST_CASE("a registered row stands in the list of ops and its name is taken") {
  minim::register_op(squareplus_row);
  CHECK(minim::all_ops().back() == &squareplus_row);
  CHECK_THROWS_AS(minim::register_op(squareplus_row), minim::Error);
}
