// ops/pair_loss_struct.h -- losses that compare two tensors element by element. The op is a
// pointwise functor (loops.h) with two operands; its values are fp32 (f64 for f64) from the first
// operation to the sum, and so is the result.
#pragma once
#include "minim/ops/loss_struct.h"
#include "minim/ops/op_struct.h"

namespace minim::op {

template <class Element>
struct PairLoss {
  static constexpr std::array operands{Operand{"x"}, Operand{"target"}};
  static constexpr Result result = Result::f32;
  static constexpr Saves saves{.inputs = 0b11};
  struct Attrs {
    Reduction reduction = Reduction::mean;  ///< over all elements; the mean of none is NaN
  };
  /// @throws Error for different shapes: broadcasting a column against a row would hide a mistake.
  static void infer(OpArgs& args) {
    if (!(args.in[0].shape == args.in[1].shape))
      fail("[", Element::name, "] x has shape ", args.in[0].shape, ", target ", args.in[1].shape,
           "; they must be equal: reshape or expand one");
    args.out[0].shape =
        args.attrs.as<Attrs>().reduction == Reduction::none ? args.in[0].shape : Shape{};
  }
  static void forward(OpArgs& args) {
    compute_in(args.dtype) == Compute::f64 ? forward_as<double>(args) : forward_as<float>(args);
  }
  static void backward(OpArgs& args) {
    compute_in(args.dtype) == Compute::f64 ? backward_as<double>(args) : backward_as<float>(args);
  }
  static std::vector<Example> examples() {
    std::vector<Example> list;
    for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
      for (const Shape& s : {Shape{}, Shape{1}, Shape{37}, Shape{2, 3, 4}})
        list.push_back({{s, s}, minim::Attrs(Attrs{r}), 0});
      if (r != Reduction::mean) list.push_back({{{0, 3}, {0, 3}}, minim::Attrs(Attrs{r}), 0});
    }
    return list;
  }

 private:
  template <class A>
  static void forward_as(OpArgs& args) {
    const Reduction reduction = args.attrs.as<Attrs>().reduction;
    if (reduction == Reduction::none) return cpu::pointwise_forward<Element, A>(args);
    const Shape& shape = args.in[0].shape;
    Scratch<A> values(size_t(shape.numel()));
    A total;
    OpArgs each = args;
    each.out[0] = Arg{values.data(), dtype_for<A>(), shape, contiguous_strides(shape), true};
    cpu::pointwise_forward<Element, A>(each);
    sum_to(static_cast<const A*>(values.data()), shape, Arg{&total, dtype_for<A>(), {}, {}, true});
    if (reduction == Reduction::mean) total /= A(shape.numel());
    store_run(args.out[0].data, args.out[0].dtype, 1, 1, &total);
  }
  template <class A>
  static void backward_as(OpArgs& args) {
    const Reduction reduction = args.attrs.as<Attrs>().reduction;
    if (reduction == Reduction::none) return cpu::pointwise_backward<Element, A>(args);
    const Shape& shape = args.in[0].shape;
    A buffer;
    A g = *load_run(args.grad_out[0].data, args.grad_out[0].dtype, 1, 1, &buffer);
    if (reduction == Reduction::mean) g /= A(shape.numel());
    OpArgs each = args;
    each.grad_out[0] = Arg{&g, dtype_for<A>(), shape, broadcast_strides({}, {}, shape), true};
    cpu::pointwise_backward<Element, A>(each);
  }
};

}  // namespace minim::op
