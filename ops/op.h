// ops/op.h -- what minim knows about an op: its row. Everything else (the public function, casts,
// recording, tests, docs) is expanded from it. An op's identity is the address of its row, so a row
// of your own program is an equal citizen.
#pragma once
#include "minim/core/backend.h"
#include "minim/ops/contract.h"

namespace minim {

/// The policy under autocast. It speaks of the range of the result: kernels compute in fp32 inside
/// in any case.
///   lower    16-bit inputs and result (matrix products)
///   fp32     the result needs fp32's range or precision
///   promote  the widest operand wins, starting at the region's dtype
///   keep     as without autocast: native promotion
///   banned   refused, naming what to use instead
enum class Cast : uint8_t { lower, fp32, promote, keep, banned };
const char* name_of(Cast cast);

/// An op: what its struct says (Spec) and what make_row adds.
struct OpRow : Spec {
  const char* name;
  Cast cast;     ///< policy `torch`
  Cast lean;     ///< policy `lean`: 16 bits wherever the kernel is fp32 inside and the range allows
  double error;  ///< c: the fp32 result is within c * 2^-24 * (|y| + sum |x|) of the exact one,
                 ///< before the one rounding
  const char* why;

  /// View rows have it in place of a forward kernel.
  Index (*view)(OpArgs&);
  Kernel forward[kKernelSets], backward[kKernelSets];  ///< by KernelSet
  std::vector<Example> (*examples)();
};

/// Runs a row's kernel on the device of args.out[0]. @throws Error where it has none there.
void run_forward(const OpRow& row, OpArgs& args);
void run_backward(const OpRow& row, OpArgs& args);

/// The built-in rows, one static member per line of ops.def: Op::exp, Op::matmul, ...
struct Op {
#define OP(name, ...) static const OpRow name;
#include "minim/ops/ops.def"
#undef OP
};

/// Every row: the built-in ones in table order, then those registered since.
const std::vector<const OpRow*>& all_ops();
/// Adds a row of the user's own program. @throws Error when the name is taken or a field that every
/// row needs is missing.
void register_op(const OpRow& row);

}  // namespace minim
