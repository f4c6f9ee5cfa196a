// The same elements in row-major order under another shape, as a view; the strides must allow it
// (Tensor::reshape copies first where they do not).
#pragma once
#include "minim/ops/view_struct.h"

namespace minim::op {

struct Reshape : ViewOf<Reshape> {
  struct Attrs {
    Shape shape;  ///< one size may be -1: what is left
  };
  /// @throws Error when the numbers of elements differ.
  static Shape resolve(const Shape& from, Shape to);
  /// Strides of a view of `shape`; false where only a copy would do.
  static bool strides_for(const Arg& x, const Shape& shape, Strides& strides);
  static Index view(OpArgs& args);
  static bool unview(const OpArgs& args, const Arg& g, Strides& strides) {
    return strides_for(g, args.in[0].shape, strides);
  }
  static constexpr Spec spec{.operands = {{"x"}}, .integers = true, .unview = unview};
  static std::vector<Example> examples();
};

}  // namespace minim::op
