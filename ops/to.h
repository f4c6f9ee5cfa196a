// Converts to another dtype, rounding once, or moves to another device; an ordinary recorded op,
// whose backward converts the gradient back. With the same dtype it is a dense copy.
#pragma once
#include <optional>

#include "minim/ops/contract.h"

namespace minim::op {

struct To : Structured {
  struct Attrs {
    DType dtype = DType::f32;
    std::optional<Device> device{};  ///< none: where x is
  };
  static void infer(OpArgs& args) {
    args.out[0].shape = args.in[0].shape;
    args.out[0].dtype = args.attrs.as<Attrs>().dtype;
    args.out[0].device = args.attrs.as<Attrs>().device.value_or(args.in[0].device);
  }
  static constexpr Spec spec{
      .operands = {{"x", Accepts::any}}, .result = Result::attribute, .infer = infer};
  static void forward(OpArgs& args) { copy(args.in[0], args.out[0]); }
  static void backward(OpArgs& args) { copy(args.grad_out[0], args.grad_in[0]); }
  static std::vector<Attrs> variants() { return {{DType::f64}}; }
  static std::vector<Example> examples() { return broadcast_examples<To>(); }
};

}  // namespace minim::op
