// Row i of weight (V, D) for every index i: indices (...) give (..., D). The gradient of a row is
// summed in fp32 over its positions in their order, whatever the number of threads.
// @throws Error naming the value, its position and the valid range where an index is not in [0, V).
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

struct Embedding : Structured {
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = {{"weight"}, {"indices", Accepts::integer, Domain::index}},
                             .saves = {.inputs = 0b10},
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
