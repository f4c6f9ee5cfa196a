// The index of the largest value along an axis, or in the flattened tensor; the first one on ties.
// NaN counts as the largest.
// @throws Error for an axis of no elements.
#pragma once
#include <optional>

#include "minim/ops/op_struct.h"

namespace minim::op {

struct ArgMax {
  static constexpr std::array operands{Operand{"x"}};
  static constexpr bool integers = true;
  static constexpr Result result = Result::i64;
  struct Attrs {
    std::optional<Index> axis{};  ///< none: the index into the flattened tensor
    bool keepdim = false;
  };
  static void infer(OpArgs& args);
  static void forward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
