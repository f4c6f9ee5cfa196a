// expect: 'const minim::Spec' has no non-static data member named 'integer'
#include "minim/ops/row.h"

namespace minim {
struct Twice : op::Unary<Twice> {
#ifdef MISTAKE
  static constexpr Spec spec{.operands = {{ "x" }}, .integer = true};
#else
  static constexpr Spec spec{.operands = {{"x"}}, .integers = true};
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
