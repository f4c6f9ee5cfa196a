// expect: an op says what it is: static constexpr Spec spec
#include "minim/ops/row.h"

namespace minim {
struct Twice : op::Unary<Twice> {
#ifndef MISTAKE
  static constexpr Spec spec{.operands = {{"x"}}};
#endif
  template <class A>
  MINIM_HD static A forward(A x) {
    return 2 * x;
  }
  template <class A>
  MINIM_HD static A slope(A, A) {
    return 2;
  }
};
constinit const OpRow row = make_row<Twice>("twice", Cast::keep, Cast::keep, 1, "a test");
}  // namespace minim
