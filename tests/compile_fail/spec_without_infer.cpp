// expect: infer is not used: name it in the spec, .infer = infer
#include "minim/ops/row.h"

namespace minim {
struct Twice : op::Unary<Twice> {
  static void infer(OpArgs& args) { args.out[0].shape = args.in[0].shape; }
#ifdef MISTAKE
  static constexpr Spec spec{.operands = { { "x" } }};
#else
  static constexpr Spec spec{.operands = {{"x"}}, .infer = infer};
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
