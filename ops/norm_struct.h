// ops/norm_struct.h -- what layer_norm and rms_norm share: rows along the last axis, and parameters
// of its size.
#pragma once
#include "minim/ops/contract.h"

namespace minim::op {

inline uint32_t last_axis(int rank, const char* op) {
  if (rank == 0) fail("[", op, "] x is 0-dim; it needs a last axis to normalise over");
  return uint32_t{1} << (rank - 1);
}

/// @throws Error unless every parameter that was given has the size of x's last axis.
inline void check_parameters(const OpArgs& args, std::span<const Operand> operands,
                             const char* op) {
  const Shape& x = args.in[0].shape;
  const Shape wanted{x[x.rank() - 1]};
  for (int k = 1; k < args.n_in; ++k)
    if (args.in[k].defined && !(args.in[k].shape == wanted))
      fail("[", op, "] ", operands[size_t(k)].name, " has shape ", args.in[k].shape, ", expected ",
           wanted, ": the last axis of x ", x);
}

/// Rows of every kind with 0 .. all of `parameters` given.
template <class Op>
std::vector<Example> norm_examples(int parameters) {
  Examples<typename Op::Attrs> all;
  for (int given = 0; given <= parameters; ++given)
    for (const Shape& x : {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{0, 3}}) {
      std::vector<Shape> shapes{x};
      for (int k = 1; k <= parameters; ++k)
        shapes.push_back(k <= given ? Shape{x[x.rank() - 1]} : all.none);
      all.add(shapes);
    }
  return all;
}

}  // namespace minim::op
