// ops/arg_extreme_struct.h -- the index of the largest or the smallest value along an axis, or in
// the flattened tensor; the first one on ties. NaN counts as the most extreme.
// @throws Error for an axis of no elements.
#pragma once
#include <optional>

#include "minim/core/rowwise.h"
#include "minim/ops/extreme_struct.h"

namespace minim::op {

template <bool kSmallest>
struct ArgExtreme : Structured {
  static constexpr const char* name = kSmallest ? "argmin" : "argmax";
  struct Attrs {
    std::optional<Index> axis{};  ///< none: the index into the flattened tensor
    bool keepdim = false;
  };
  static void infer(OpArgs& args) {
    check_not_empty(args, mask_of(args), name);
    args.out[0].shape =
        reduced_shape(args.in[0].shape, mask_of(args), args.attrs.as<Attrs>().keepdim);
  }
  static constexpr Spec spec{.operands = {{"x"}},
                             .result = Result::i64,
                             .integers = true,
                             .differentiable = false,
                             .infer = infer};
  static void forward(OpArgs& args) { cpu::by_compute<Run, ArgExtreme>(args); }
  static std::vector<Example> examples() {
    Examples<Attrs> all;
    for (const Shape& x : {Shape{}, Shape{1}, Shape{37}, Shape{2, 3, 4}}) all.add({x});
    all.add({{2, 3, 4}}, {.axis = 1});
    all.add({{2, 3, 4}}, {.axis = -1, .keepdim = true});
    all.add({{0, 3}}, {.axis = 1});
    return all;
  }

 private:
  static uint32_t mask_of(const OpArgs& args) {
    const auto& axis = args.attrs.as<Attrs>().axis;
    const int rank = args.in[0].shape.rank();
    return axis ? axis_mask({*axis}, rank, name) : axis_mask({}, rank, name);
  }
  // Not a rowwise functor: those write their results in the compute type, and fp32 has no integers
  // above 2^24.
  template <class A>
  struct First {
    static void run(const A* x, Index n, Index* at) {
      *at = Extreme<kSmallest>::first(CpuLane{n}, x);
    }
  };
  template <class, class A>
  struct Run {
    static void run(OpArgs& args) {
      const cpu::Rows rows(args.in[0].shape, mask_of(args));
      const cpu::Together together(rows);
      Index* out = static_cast<Index*>(args.out[0].data);
      const Index grain = std::max(together.most, 4096 / rows.n);
      parallel_for(rows.count, grain, [&](Index begin, Index end) {
        Scratch<A> buffer(size_t(together.most * together.stride));
        const cpu::RowIo<A> in{.arg = &args.in[0],
                               .along = Along::row,
                               .buffer = buffer.data(),
                               .strides = args.in[0].strides,
                               .together = together.of(begin, end)};
        for (Index r = begin; r < end; ++r) per_isa<A, First<A>>(in.load(rows, r), rows.n, out + r);
      });
    }
  };
};

}  // namespace minim::op
