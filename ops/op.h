// ops/op.h -- what minim knows about an op: its row. Everything else (the public function, casts,
// recording, tests, docs) is expanded from it. An op's identity is the address of its row, so a row
// of your own program is an equal citizen.
#pragma once
#include <span>

#include "minim/ops/op_struct.h"

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

struct OpRow {
  const char* name;
  Cast cast;     ///< policy `torch`
  Cast lean;     ///< policy `lean`: 16 bits wherever the kernel is fp32 inside and the range allows
  double error;  ///< c: the fp32 result is within c * 2^-24 * (|y| + sum |x|) of the exact one,
                 ///< before the one rounding
  const char* why;

  std::span<const Operand> operands;
  Result result;
  Saves saves;
  int outputs;      ///< how many the kernel makes
  int returned;     ///< how many the caller sees; the rest are statistics for backward
  bool same_dtype;  ///< refuses mixed floating operands outside autocast
  bool integers;    ///< has an i64 kernel: integers and bool stay; otherwise they become f32
  bool random;
  bool strided;  ///< its CPU kernels write results and gradients of any strides
  std::span<const NumberAttr> numbers;  ///< among the attributes
  uint32_t shown;  ///< operands that a result may be, and does not only depend on: a number there
                   ///< that the result's dtype rounds to 0 is warned of: bits
  uint32_t over;  ///< operands whose saved values backward may overwrite with their gradients: bits
  const char* instead;  ///< for banned rows: what to use

  /// Sets the outputs' shapes, dtypes for Result::attribute, and strides where they are not
  /// row-major. @throws Error
  void (*infer)(OpArgs&);
  /// For view rows: sets out[0]'s shape and strides and returns the offset, in elements; such rows
  /// have no forward kernel.
  Index (*view)(OpArgs&);
  /// For views of all elements: the strides that make the result's gradient `g` the operand's;
  /// false where only a copy does.
  bool (*unview)(const OpArgs&, const Arg& g, Strides&);
  Kernel forward[kDeviceKinds], backward[kDeviceKinds];
  std::vector<Example> (*examples)();

  bool differentiable() const { return backward[0] != nullptr; }
};

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
