#include "minim/ops/call.h"

#include <algorithm>
#include <cmath>

#include "minim/amp/autocast.h"
#include "minim/autograd/recorder.h"
#include "minim/core/pool.h"
#include "minim/core/probe.h"
#include "minim/core/profile.h"
#include "minim/core/random.h"

namespace minim {

Generator& generator() {
  static thread_local Generator g;
  return g;
}
void manual_seed(uint64_t seed) { generator() = {seed, 0}; }

namespace {

bool accepted(Accepts accepts, DType d) {
  switch (accepts) {
    case Accepts::floating:
      return true;  // integers become floats, or use the integer kernel
    case Accepts::integer:
      return info(d).category == Category::integral;
    case Accepts::boolean:
      return d == DType::boolean;
    case Accepts::any:
      return true;
  }
  return false;
}

/// @return the device of those that are no numbers: these live on the host, and go anywhere
Device check_operands(const OpRow& row, std::span<const Tensor> xs) {
  if (xs.size() != row.operands.size())
    fail("[", row.name, "] takes ", row.operands.size(), " operands, ", xs.size(), " were given");
  const Tensor* first = nullptr;
  for (size_t k = 0; k < xs.size(); ++k) {
    const Operand& o = row.operands[k];
    if (!xs[k].defined()) {
      if (!o.optional) fail("[", row.name, "] operand '", o.name, "' is missing");
      continue;
    }
    if (!accepted(o.accepts, xs[k].dtype()))
      fail("[", row.name, "] operand '", o.name, "' must be ",
           o.accepts == Accepts::boolean ? "bool" : "an integer tensor", ", not ",
           name_of(xs[k].dtype()), xs[k].shape());
    if (is_storage_only(xs[k].dtype()) && !row.view && o.accepts != Accepts::any)
      fail("[", row.name, "] operand '", o.name, "' is ", name_of(xs[k].dtype()), xs[k].shape(),
           ", which is for storage only; convert it first, as with .to(DType::bf16)");
    if (xs[k].impl()->scalar) continue;
    if (!first) first = &xs[k];
    if (!(xs[k].device() == first->device()))
      fail("[", row.name, "] operands are on different devices: ", name_of(first->device().kind),
           " and ", name_of(xs[k].device().kind), "; move one with .to(device)");
  }
  return first ? first->device() : kHost;
}

/// The operands that speak in promotion: floating ones, and integers where the op takes floats.
std::span<const Typed> typed(const OpRow& row, std::span<const Tensor> xs, std::span<Typed> room) {
  size_t n = 0;
  for (size_t k = 0; k < xs.size(); ++k)
    if (xs[k].defined() && row.operands[k].accepts == Accepts::floating) room[n++] = xs[k].typed();
  if (n == 0) room[n++] = {DType::f32};
  return room.first(n);
}

/// A floating operand in another dtype, by a recorded op. A leaf's 16-bit copy is made once per
/// autocast region.
Tensor converted(const Tensor& x, DType to, const amp::Autocast& region) {
  if (!is_floating(x.dtype()) || x.dtype() == to || x.dtype() == DType::f64) return x;
  bool leaf = x.requires_grad() && !x.impl()->autograd->node && x.dtype() == DType::f32;  // to 16
  if (!leaf) return x.to(to);
  if (Tensor known = region.find(x, to); known.defined()) return known;
  MemoryScope kind(MemoryKind::casts);
  Tensor copy = x.to(to);
  region.keep(x, copy);
  return copy;
}

void check_same_dtype(const OpRow& row, std::span<const Tensor> xs) {
  const Tensor* first = nullptr;
  size_t first_k = 0;
  for (size_t k = 0; k < xs.size(); ++k) {
    if (!xs[k].defined() || row.operands[k].accepts != Accepts::floating) continue;
    if (!first) {
      first = &xs[k];
      first_k = k;
    } else if (xs[k].dtype() != first->dtype()) {
      fail("[", row.name, "] operands differ in dtype: ", row.operands[first_k].name, " is ",
           name_of(first->dtype()), first->shape(), " (", origin(*first), "), ",
           row.operands[k].name, " is ", name_of(xs[k].dtype()), xs[k].shape(), " (", origin(xs[k]),
           "); convert one with .to()",
           amp::Autocast::current() ? ", as the region leaves f64, and rows that keep, as they are"
                                    : ", or run inside Autocast");
    }
  }
}

/// Numbers of the language, among the operands and the attributes.
void check_numbers(const OpRow& row, std::span<const Tensor> xs, const Attrs& attrs, DType dtype) {
  const bool as_they_are =  // integers are compared in i64, which holds them all
      row.view || (row.result == Result::boolean && !is_floating(dtype));
  for (size_t k = 0; k < xs.size() && !as_they_are; ++k)
    if (xs[k].defined() && xs[k].impl()->scalar && row.operands[k].accepts == Accepts::floating)
      detail::check_number(row.name, xs[k].number(), dtype, row.shown >> k & 1, "operand",
                           row.operands[k].name);
  for (const NumberAttr& number : row.numbers)
    detail::check_number(row.name, number.of(attrs),
                         number.shown                        ? dtype
                         : compute_in(dtype) == Compute::f64 ? DType::f64
                                                             : DType::f32,
                         true, "attribute", number.name);
}

DType result_dtype(const OpRow& row, DType chosen, DType inferred) {
  switch (row.result) {
    case Result::same:
      return chosen;
    case Result::f32:
      return promote_types(DType::f32, chosen == DType::f64 ? chosen : DType::f32);
    case Result::boolean:
      return DType::boolean;
    case Result::i64:
      return DType::i64;
    case Result::attribute:
      return inferred;
  }
  return chosen;
}

void make_outputs(const OpRow& row, OpArgs& args, std::span<const Tensor> xs, Tensor* outputs) {
  if (row.view) {
    Index offset = row.view(args);
    outputs[0] =
        as_strided(xs[0], args.out[0].shape, args.out[0].strides, xs[0].impl()->offset + offset);
    return void(args.out[0].dtype = xs[0].dtype());
  }
  for (int k = 0; k < args.n_out; ++k) {
    DType d = k == 0 || row.result != Result::attribute
                  ? result_dtype(row, args.dtype, args.out[k].dtype)
                  : args.out[k].dtype;
    if (k >= row.returned)
      d = compute_in(args.dtype) == Compute::f64 ? DType::f64 : DType::f32;  // statistics
    outputs[k] = empty(args.out[k].shape, d, args.out[k].device);
    if (args.out[k].strides.rank() > 0)
      outputs[k] = as_strided(outputs[k], args.out[k].shape, args.out[k].strides, 0);
    point(args.out[k], outputs[k]);
  }
}

}  // namespace

std::vector<Tensor> call(const OpRow& row, std::span<const Tensor> xs, const Attrs& attrs) {
  std::vector<Tensor> outputs(row.outputs.size());
  call(row, xs, attrs, outputs);
  return outputs;
}

void call(const OpRow& row, std::span<const Tensor> xs, const Attrs& attrs,
          std::span<Tensor> outputs) try {
  const Device device = check_operands(row, xs);
  const amp::Autocast* region = amp::Autocast::current();
  Typed room[kMaxOperands];
  amp::Choice choice = amp::choose_dtype(row, region, typed(row, xs, room));
  std::vector<Tensor> cast;
  if (choice.convert) {
    cast.assign(xs.begin(), xs.end());
    for (size_t k = 0; k < xs.size(); ++k)
      if (xs[k].defined() && row.operands[k].accepts == Accepts::floating)
        cast[k] = converted(xs[k], choice.dtype, *region);
    xs = cast;
  }
  if (row.same_dtype) check_same_dtype(row, xs);
  check_numbers(row, xs, attrs, choice.dtype);
  if (row.result == Result::boolean && is_half(choice.dtype)) {  // 0.1 is what f16 makes of it
    const NoGrad no_recording;
    if (cast.empty()) cast.assign(xs.begin(), xs.end());
    for (Tensor& x : cast)
      if (x.defined() && is_floating(x.dtype())) x = x.to(choice.dtype);
    xs = cast;
  }

  OpArgs args(int(xs.size()), int(row.outputs.size()));
  args.dtype = choice.dtype;
  args.attrs = attrs;
  for (size_t k = 0; k < xs.size(); ++k) point(args.in[k], xs[k]);
  for (int k = 0; k < args.n_out; ++k) args.out[k].device = device;
  if (row.random)
    args.rng = {generator().seed, random_stream(RandomUse::dropout, generator().next_stream++)};
  if (row.infer && !row.view) {
    args.out[0].dtype = choice.dtype;
    row.infer(args);
  }
  make_outputs(row, args, xs, outputs.data());
  if (!row.view) {
    Timed timed(row.name, &row == &Op::to ? Phase::casts : Phase::forward);
    run_forward(row, args);
    timed.made(std::span(args.out, size_t(args.n_out)));
  }
  if (Probe* probe = Probe::current()) probe->after_op(row, args, false);
  if (Recorder* recorder = Recorder::current(); recorder && GradMode::enabled())
    recorder->watch(xs);
  carry_marks(row, xs, outputs);

  bool wanted = GradMode::enabled() && std::any_of(xs.begin(), xs.end(), [](const Tensor& x) {
                  return x.defined() && x.requires_grad();
                });
  if (wanted && is_floating(outputs[0].dtype())) {
    if (!row.differentiable)
      fail("[", row.name,
           "] has no backward, but an operand requires gradients; call it on x.detach() or under "
           "NoGrad");
    record(row, args, xs, outputs);
  }
} catch (const std::bad_alloc&) {
  pool::fail_full(row.name);
}

}  // namespace minim
