#include "minim/ops/argmax.h"

#include "minim/ops/max.h"

namespace minim::op {
namespace {

uint32_t mask_of(const OpArgs& args) {
  const auto& axis = args.attrs.as<ArgMax::Attrs>().axis;
  const int rank = args.in[0].shape.rank();
  return axis && rank > 0 ? axis_mask({*axis}, rank, "argmax") : axis_mask({}, rank, "argmax");
}

// Not a rowwise functor: those write their results in the compute type, and fp32 has no integers
// above 2^24.
template <class A>
void forward_as(OpArgs& args) {
  const cpu::Rows rows(args.in[0].shape, mask_of(args));
  Index* out = static_cast<Index*>(args.out[0].data);
  parallel_for(rows.count, std::max<Index>(1, 4096 / rows.n), [&](Index begin, Index end) {
    Scratch<A> buffer(static_cast<size_t>(rows.n));
    const cpu::RowIo<A> in{&args.in[0], Along::row, buffer.data(), args.in[0].strides};
    for (Index r = begin; r < end; ++r) {
      const A* x = in.load(rows, r);
      out[r] = first_of(CpuLane{rows.n}, x, Max::top(CpuLane{rows.n}, x));
    }
  });
}

}  // namespace

void ArgMax::infer(OpArgs& args) {
  check_not_empty(args, mask_of(args), "argmax");
  args.out[0].shape =
      reduced_shape(args.in[0].shape, mask_of(args), args.attrs.as<Attrs>().keepdim);
}

void ArgMax::forward(OpArgs& args) {
  switch (compute_in(args.dtype)) {
    case Compute::f32:
      return forward_as<float>(args);
    case Compute::f64:
      return forward_as<double>(args);
    case Compute::i64:
      return forward_as<int64_t>(args);
  }
}

std::vector<Example> ArgMax::examples() {
  std::vector<Example> list;
  auto add = [&](Shape shape, Attrs attrs) { list.push_back({{shape}, minim::Attrs(attrs), 0}); };
  add({}, {});
  add({1}, {});
  add({37}, {});
  add({2, 3, 4}, {});
  add({2, 3, 4}, {.axis = 1});
  add({2, 3, 4}, {.axis = -1, .keepdim = true});
  add({0, 3}, {.axis = 1});
  return list;
}

}  // namespace minim::op
