// ops/pair_loss_struct.h -- losses that compare two tensors element by element. The op is a
// pointwise functor (loops.h) with two operands; its values are fp32 (f64 for f64) from the first
// operation to the sum, and so is the result.
#pragma once
#include <cmath>

#include "minim/core/loops.h"
#include "minim/ops/contract.h"
#include "minim/ops/loss_struct.h"

namespace minim::op {

template <class Element>
struct PairLoss : Structured {
  struct Plain {
    Reduction reduction = Reduction::mean;  ///< over all elements; the mean of none is NaN
  };
  /// The element's own, if it has some, which then begin with a reduction.
  using Attrs =
      std::conditional_t<std::is_same_v<attrs_t<Element>, NoAttrs>, Plain, attrs_t<Element>>;
  /// @throws Error for different shapes: broadcasting a column against a row would hide a mistake.
  static void infer(OpArgs& args) {
    if (!(args.in[0].shape == args.in[1].shape))
      fail("[", Element::name, "] x has shape ", args.in[0].shape, ", target ", args.in[1].shape,
           "; they must be equal: reshape or expand one");
    const Reduction reduction = args.attrs.as<Attrs>().reduction;
    if (reduction == Reduction::batchmean && args.in[0].shape.rank() == 0)
      fail("[", Element::name, "] batchmean of a 0-dim x: it needs a first axis; use mean");
    args.out[0].shape = reduction == Reduction::none ? args.in[0].shape : Shape{};
  }
  static constexpr Spec spec{.operands = {{"x"}, {"target"}},
                             .saves = {.inputs = 0b11},
                             .result = Result::f32,
                             .infer = infer};
  static void forward(OpArgs& args) { run_floating(args, forward_as<float>, forward_as<double>); }
  static void backward(OpArgs& args) {
    run_floating(args, backward_as<float>, backward_as<double>);
  }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    for (Attrs attrs : variants())
      for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
        attrs.reduction = r;
        for (const Shape& s : {Shape{}, Shape{1}, Shape{37}, Shape{2, 3, 4}})
          all.add({s, s}, attrs);
        if (r != Reduction::mean) all.add({{0, 3}, {0, 3}}, attrs);
      }
    all.add({{2, 3, 4}, {2, 3, 4}}, {Reduction::batchmean});
    return all;
  }

 private:
  static std::vector<Attrs> variants() {
    if constexpr (requires { Element::variants(); }) return Element::variants();
    return {Attrs{}};
  }
  /// What the sum is divided by.
  static Index divisor(Reduction reduction, const Shape& shape) {
    return reduction == Reduction::mean        ? shape.numel()
           : reduction == Reduction::batchmean ? shape[0]
                                               : 1;
  }
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
    sum_to(static_cast<const A*>(values.data()), shape, Arg{&total, dtype_for<A>(), {}, {}, true},
           divisor(reduction, shape));
    // An element's loss may leave fp32 where their mean fits.
    if (std::is_same_v<A, float> && !is_finite(total)) return forward_as<double>(args);
    store_run(args.out[0].data, args.out[0].dtype, 1, 1, &total);
  }
  template <class A>
  static void backward_as(OpArgs& args) {
    const Reduction reduction = args.attrs.as<Attrs>().reduction;
    if (reduction == Reduction::none) return cpu::pointwise_backward<Element, A>(args);
    const Shape& shape = args.in[0].shape;
    A buffer;
    A g = *load_run(args.grad_out[0].data, args.grad_out[0].dtype, 1, 1, &buffer);
    g /= A(divisor(reduction, shape));
    OpArgs each = args;
    each.grad_out[0] = Arg{&g, dtype_for<A>(), shape, broadcast_strides({}, {}, shape), true};
    cpu::pointwise_backward<Element, A>(each);
  }
};

}  // namespace minim::op
