// ops/row.h -- builds a row from an op's struct. A struct is pointwise (forward on scalars),
// rowwise (forward on a Lane), a view (view(args)) or structured (forward(OpArgs&) of its own);
// whatever it does not say has the default below.
#pragma once
#include "minim/ops/op.h"

namespace minim {

namespace detail {
template <class Op>
concept Rowwise = requires {
  Op::axes(std::declval<attrs_t<Op>>(), 0);
};
template <class Op>
concept View = requires(OpArgs& args) {
  Op::view(args);
};
template <class Op>
concept Pointwise = requires {
  Op::arity;
};
template <class Op>
concept Structured = !Rowwise<Op> && !View<Op> && !Pointwise<Op>;
}  // namespace detail

namespace row_defaults {

inline constexpr Operand kNamed[] = {{"x"}, {"y"}, {"z"}};

template <class Op>
constexpr std::span<const Operand> operands() {
  if constexpr (requires { Op::operands; })
    return Op::operands;
  else
    return std::span(kNamed).first(Op::arity);
}

/// How many outputs the kernel makes.
template <class Op>
constexpr int outputs() {
  if constexpr (requires { Op::n_outputs; })
    return Op::n_outputs;
  else if constexpr (detail::Rowwise<Op>)
    return int(Op::outputs.size());
  else
    return 1;
}
/// How many of them the caller sees.
template <class Op>
constexpr int returned() {
  if constexpr (requires { Op::returned; }) return Op::returned;
  return outputs<Op>();
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
  for (size_t k = 0; k < Op::outputs.size(); ++k) {
    args.out[k].shape = x;
    if (Op::outputs[k] == Along::row) continue;
    bool keepdim = false;
    if constexpr (requires { attrs.keepdim; }) keepdim = attrs.keepdim;
    for (int i = x.rank(); i-- > 0;)
      if (mask >> i & 1) keepdim ? void(args.out[k].shape[i] = 1) : args.out[k].shape.erase(i);
  }
  if constexpr (requires { Op::check(args); }) Op::check(args);
}

template <class Op>
std::vector<Example> examples() {
  if constexpr (requires { Op::examples(); }) return Op::examples();
  std::vector<attrs_t<Op>> variants(1);
  if constexpr (requires { Op::variants(); }) variants = Op::variants();
  constexpr size_t n = operands<Op>().size();
  Examples<attrs_t<Op>> all;
  for (const auto& attrs : variants) {
    for (const Shape& x : {Shape{}, Shape{0}, Shape{1}, Shape{37}, Shape{3, 5}, Shape{2, 3, 4}})
      all.add(std::vector(n, x), attrs);
    std::vector<Shape> broadcast(n, Shape{3, 1});  // in either direction
    if (n > 1) broadcast[1] = {2, 1, 4}, all.add(broadcast, attrs);
  }
  return all;
}

}  // namespace row_defaults

template <class Op>
constexpr bool has_backward() {
  if constexpr (requires { Op::differentiable; }) return Op::differentiable;
  if constexpr (detail::Structured<Op>) return requires(OpArgs & args) {
      Op::backward(args);
    };
  return true;
}

template <class Op>
constexpr void set_cpu_kernels(OpRow& row) {
  if constexpr (detail::Structured<Op>)
    row.forward[0] = [](OpArgs& args) { Op::forward(args); };
  else if constexpr (detail::Rowwise<Op>)
    row.forward[0] = cpu::by_compute<cpu::RowwiseForward, Op>;
  else if constexpr (detail::Pointwise<Op>)
    row.forward[0] = cpu::by_compute<cpu::PointwiseForward, Op>;
  if constexpr (!has_backward<Op>())
    return;
  else if constexpr (detail::Structured<Op> || detail::View<Op>)
    row.backward[0] = [](OpArgs& args) { Op::backward(args); };
  else if constexpr (detail::Rowwise<Op>)
    row.backward[0] = cpu::by_compute<cpu::RowwiseBackward, Op>;
  else
    row.backward[0] = cpu::by_compute<cpu::PointwiseBackward, Op>;
}

namespace cuda {
/// Defined in ops/row.cuh, for a row that has a CUDA source.
template <class Op>
void forward(OpArgs& args);
template <class Op>
void backward(OpArgs& args);
}  // namespace cuda

/// Structured rows and views have no CUDA kernels.
template <class Op>
constexpr void set_cuda_kernels(OpRow& row) {
  if constexpr (detail::Rowwise<Op> || detail::Pointwise<Op>) {
    row.forward[1] = cuda::forward<Op>;
    if constexpr (has_backward<Op>()) row.backward[1] = cuda::backward<Op>;
  }
}

/// @tparam Cuda the program has a CUDA source that instantiates cuda::forward<Op> and
/// cuda::backward<Op>.
template <class Op, bool Cuda = false>
constexpr OpRow make_row(const char* name, Cast cast, Cast lean, double error, const char* why) {
  OpRow row{};
  row.name = name;
  row.cast = cast;
  row.lean = lean;
  row.error = error;
  row.why = why;
  row.operands = row_defaults::operands<Op>();
  row.outputs = row_defaults::outputs<Op>();
  row.returned = row_defaults::returned<Op>();
  if constexpr (requires { Op::result; }) row.result = Op::result;
  if constexpr (requires { Op::saves; }) row.saves = Op::saves;
  if constexpr (requires { Op::same_dtype; }) row.same_dtype = Op::same_dtype;
  if constexpr (requires { Op::integers; }) row.integers = Op::integers;
  if constexpr (requires { Op::random; }) row.random = Op::random;
  if constexpr (requires { Op::over; })
    row.over = Op::over;
  else if constexpr (detail::Pointwise<Op>)
    row.over = row.saves.inputs;
  else if constexpr (detail::Rowwise<Op>)
    for (size_t k = 0; k < row.operands.size(); ++k)
      row.over |= (row.operands[k].along == Along::row) << k;
  if constexpr (requires { Op::numbers; }) row.numbers = Op::numbers;
  if constexpr (requires { Op::shown; }) row.shown = Op::shown;
  if constexpr (requires { Op::strided; }) row.strided = Op::strided;
  if constexpr (requires { Op::instead; }) row.instead = Op::instead;
  if constexpr (requires(OpArgs & args) { Op::infer(args); })
    row.infer = Op::infer;
  else if constexpr (detail::Rowwise<Op>)
    row.infer = row_defaults::row_shapes<Op>;
  else
    row.infer = row_defaults::broadcast_shape;
  if constexpr (detail::View<Op>) row.view = Op::view;
  if constexpr (requires { Op::unview; }) row.unview = Op::unview;
  row.examples = row_defaults::examples<Op>;
  set_cpu_kernels<Op>(row);
  if constexpr (Cuda) set_cuda_kernels<Op>(row);
  return row;
}

}  // namespace minim
