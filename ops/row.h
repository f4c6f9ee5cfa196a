// ops/row.h -- builds a row from an op's struct (ops/contract.h), fills in what it leaves to its
// kind, and says at the row what the struct lacks.
#pragma once
#include "minim/core/rowwise.h"
#include "minim/ops/op.h"

namespace minim {

namespace detail {

template <class Op, class Kind>
inline constexpr bool is_kind = std::is_base_of_v<Kind, Op>;

/// Every mistake that a compiler can see, by name.
template <class Op>
constexpr void check_struct() {
  static_assert(
      requires { Op::spec; }, "an op says what it is: static constexpr Spec spec{...}");
  constexpr Spec spec = Op::spec;
  constexpr bool pointwise = is_kind<Op, op::Pointwise>, rowwise = is_kind<Op, op::Rowwise>,
                 view = is_kind<Op, op::View>, structured = is_kind<Op, op::Structured>;
  static_assert(pointwise + rowwise + view + structured == 1,
                "an op derives from one of Pointwise, Rowwise, View, Structured");
  static_assert(spec.operands.size() > 0, "an op has at least one operand: spec.operands");
  static_assert(rowwise == (spec.outputs[0] != Along::own),
                "the outputs of a rowwise op are Along::row or Along::each, those of others own");
  static_assert(
      pointwise || requires { Op::examples(); }, "the generated tests need examples() of this op");
  static_assert(
      spec.infer.given() || !requires(OpArgs & args) { Op::infer(args); },
      "infer is not used: name it in the spec, .infer = infer");
  static_assert(
      spec.check.given() || !requires(OpArgs & args) { Op::check(args); },
      "check is not used: name it in the spec, .check = check");
  static_assert(
      spec.unview.given() || !requires(OpArgs & args, Arg g, Strides s) { Op::unview(args, g, s); },
      "unview is not used: name it in the spec, .unview = unview");
  static_assert(
      !spec.differentiable || pointwise || rowwise ||
          requires(OpArgs & args) { Op::backward(args); },
      "a differentiable op needs backward(OpArgs&); else say .differentiable = false");
}

inline void broadcast_shape(OpArgs& args) {
  Shape shape = args.in[0].shape;
  for (int k = 1; k < args.n_in; ++k) shape = broadcast(shape, args.in[k].shape, "broadcast");
  args.out[0].shape = shape;
}

/// Row outputs have the first operand's shape, a value per row has the kept axes.
template <class Op>
void row_shapes(OpArgs& args) {
  const auto& attrs = args.attrs.as<attrs_t<Op>>();
  const Shape& x = args.in[0].shape;
  uint32_t mask = Op::axes(attrs, x.rank());
  for (size_t k = 0; k < kOutputs<Op>; ++k) {
    args.out[k].shape = x;
    if (Op::spec.outputs[k] == Along::row) continue;
    bool keepdim = false;
    if constexpr (requires { attrs.keepdim; }) keepdim = attrs.keepdim;
    for (int i = x.rank(); i-- > 0;)
      if (mask >> i & 1) keepdim ? void(args.out[k].shape[i] = 1) : args.out[k].shape.erase(i);
  }
  if constexpr (Op::spec.check.given()) Op::spec.check(args);
}

template <class Op>
constexpr void set_cpu_kernels(OpRow& row) {
  if constexpr (is_kind<Op, op::Structured>)
    row.forward[0] = [](OpArgs& args) { Op::forward(args); };
  else if constexpr (is_kind<Op, op::Rowwise>)
    row.forward[0] = cpu::by_compute<cpu::RowwiseForward, Op>;
  else if constexpr (is_kind<Op, op::Pointwise>)
    row.forward[0] = cpu::by_compute<cpu::PointwiseForward, Op>;
  if constexpr (!Op::spec.differentiable)
    return;
  else if constexpr (is_kind<Op, op::Rowwise>)
    row.backward[0] = cpu::by_compute<cpu::RowwiseBackward, Op>;
  else if constexpr (is_kind<Op, op::Pointwise>)
    row.backward[0] = cpu::by_compute<cpu::PointwiseBackward, Op>;
  else
    row.backward[0] = [](OpArgs& args) { Op::backward(args); };
}

}  // namespace detail

namespace cuda {
/// Defined in ops/row.cuh, for a row that has a CUDA source.
template <class Op>
void forward(OpArgs& args);
template <class Op>
void backward(OpArgs& args);
}  // namespace cuda

namespace detail {

/// Structured rows and views have no CUDA kernels.
template <class Op>
constexpr void set_cuda_kernels(OpRow& row) {
  if constexpr (is_kind<Op, op::Rowwise> || is_kind<Op, op::Pointwise>) {
    row.forward[1] = cuda::forward<Op>;
    if constexpr (Op::spec.differentiable) row.backward[1] = cuda::backward<Op>;
  }
}

/// What backward may overwrite where the spec leaves it to the kind.
template <class Op>
constexpr uint32_t overwritten() {
  uint32_t over = 0;
  if constexpr (is_kind<Op, op::Pointwise>) over = Op::spec.saves.inputs;
  if constexpr (is_kind<Op, op::Rowwise>)
    for (size_t k = 0; k < kOperands<Op>; ++k)
      over |= uint32_t{Op::spec.operands[k].along == Along::row} << k;
  return over;
}

}  // namespace detail

/// @tparam Cuda the program has a CUDA source that instantiates cuda::forward<Op> and
/// cuda::backward<Op>.
template <class Op, bool Cuda = false>
constexpr OpRow make_row(const char* name, Cast cast, Cast lean, double error, const char* why) {
  detail::check_struct<Op>();
  OpRow row{Op::spec, name, cast, lean, error, why, nullptr, {}, {}, nullptr};
  if (row.returned == Spec::kAll) row.returned = int(kOutputs<Op>);
  if (row.over == Spec::kByKind) row.over = detail::overwritten<Op>();
  if constexpr (!Op::spec.infer.given()) {
    if constexpr (detail::is_kind<Op, op::Rowwise>)
      row.infer = detail::row_shapes<Op>;
    else
      row.infer = detail::broadcast_shape;
  }
  if constexpr (detail::is_kind<Op, op::View>) row.view = Op::view;
  if constexpr (requires { Op::examples(); })
    row.examples = Op::examples;
  else
    row.examples = op::broadcast_examples<Op>;
  detail::set_cpu_kernels<Op>(row);
  if constexpr (Cuda) detail::set_cuda_kernels<Op>(row);
  return row;
}

}  // namespace minim
