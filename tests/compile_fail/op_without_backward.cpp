// expect: a differentiable op needs backward(OpArgs&)
#include "minim/ops/row.h"

namespace minim {
struct Twice : op::Structured {
  static constexpr Spec spec{.operands = {{"x"}}};
  static void forward(OpArgs& args) { copy(args.in[0], args.out[0]); }
#ifndef MISTAKE
  static void backward(OpArgs& args) { copy(args.grad_out[0], args.grad_in[0]); }
#endif
  static std::vector<Example> examples() { return op::broadcast_examples<Twice>(); }
};
constinit const OpRow row = make_row<Twice>("twice", Cast::keep, Cast::keep, 1, "a test");
}  // namespace minim
