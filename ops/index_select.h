// The slices of x along an axis that a 1-d (or 0-d) index names, in its order: out[i][j] =
// x[index[i]][j] for axis = 0. The gradient of a slice that is named more than once is summed in
// fp32, in the order of the index.
// @throws Error where the index has more axes, or naming the value, its position and the valid
// range of a wrong one.
#pragma once
#include "minim/ops/gather.h"

namespace minim::op {

struct IndexSelect : Gather {
  static constexpr const char* name = "index_select";
  static void infer(OpArgs& args);
  static constexpr Spec spec{.operands = Gather::spec.operands,
                             .saves = Gather::spec.saves,
                             .integers = true,
                             .infer = infer};
  static void forward(OpArgs& args);
  static void backward(OpArgs& args);
  static std::vector<Example> examples();
};

}  // namespace minim::op
