// core/functor.h -- what the loops ask of an op's struct (ops/contract.h) on every device: how many
// operands it has, which attributes, and, for rowwise ops, how each lies along the rows.
#pragma once
#include <cstddef>
#include <cstdint>

namespace minim {

/// How an operand or output of a rowwise op lies along the rows: an element per position; one row
/// used by all; a value per row. Of other ops: a shape of its own.
enum class Along : uint8_t { row, shared, each, own };

struct NoAttrs {};
template <class Op>
struct attrs_of {
  using type = NoAttrs;
};
template <class Op>
requires requires { typename Op::Attrs; }
struct attrs_of<Op> {
  using type = typename Op::Attrs;
};
template <class Op>
using attrs_t = typename attrs_of<Op>::type;

template <class Op>
inline constexpr size_t kOperands = Op::spec.operands.size();
template <class Op>
inline constexpr size_t kOutputs = Op::spec.outputs.size();
/// What a pointwise forward takes: its operands and, if it is random, the draw.
template <class Op>
inline constexpr size_t kInputs = kOperands<Op> + (Op::spec.random ? 1 : 0);

}  // namespace minim
