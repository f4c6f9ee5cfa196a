#include "minim/autograd/anomaly.h"

#include <atomic>
#include <cmath>

#include "minim/core/convert.h"
#include "minim/core/walk.h"

namespace minim::autograd {
namespace {

constexpr unsigned kNan = 1, kPlus = 2, kMinus = 4;

/// Which values that are not finite a tensor holds.
unsigned kinds_in(const Arg& given) {
  if (!given.data || !is_floating(given.dtype)) return 0;
  Tensor keep;
  const Arg x = on_host(given, keep);
  std::atomic<unsigned> kinds{0};
  detail::Walk<1> walk(x.shape, {&x.strides});
  walk.run([&](std::array<Index, 1> at, Index n) {
    constexpr Index kRoom = 256;
    double room[kRoom];
    unsigned mine = 0;
    for (Index i = 0; i < n; i += kRoom, at[0] += kRoom * walk.stride[0]) {
      Index m = std::min(kRoom, n - i);
      const double* v = load_run(advance(x.data, x.dtype, at[0]), x.dtype, walk.stride[0], m, room);
      for (Index j = 0; j < m; ++j)
        if (!std::isfinite(v[j])) mine |= std::isnan(v[j]) ? kNan : v[j] > 0 ? kPlus : kMinus;
    }
    if (mine) kinds |= mine;
  });
  return kinds;
}

unsigned kinds_in(const Arg* args, int n) {
  unsigned kinds = 0;
  for (int k = 0; k < n; ++k) kinds |= kinds_in(args[k]);
  return kinds;
}

std::string describe(const Arg& x) {
  std::ostringstream text;
  text << name_of(x.dtype) << x.shape;
  if (!x.data) return text.str() + ": not kept";
  if (!is_floating(x.dtype) || x.shape.numel() == 0) return text.str();
  Tensor values = empty(x.shape, DType::f64, kHost);
  copy(x, arg_of(values));
  double least = INFINITY, largest = -INFINITY, sum = 0;
  Index finite = 0;
  for (double v : values.span<double>()) {
    if (!std::isfinite(v)) continue;
    least = std::min(least, v), largest = std::max(largest, v), sum += v;
    ++finite;
  }
  if (finite) text << ": min " << least << ", max " << largest << ", mean " << sum / double(finite);
  text << ", " << x.shape.numel() - finite << " of " << x.shape.numel() << " not finite";
  return text.str();
}

/// What the op's result k is when it is computed again in fp32.
std::string in_fp32(const OpRow& row, OpArgs args, int k) {
  Tensor in[kMaxOperands], out[kMaxOutputs];
  auto widen = [](Arg& arg, Tensor& to) {
    if (!is_half(arg.dtype)) return;
    const Arg from = std::exchange(arg, arg_of(to = empty(arg.shape, DType::f32, arg.device)));
    if (from.defined) arg.defined = true, copy(from, arg);
  };
  for (int i = 0; i < args.n_in; ++i)
    if (args.in[i].data) widen(args.in[i], in[i]);
  for (int i = 0; i < args.n_out; ++i) {
    const Arg& y = args.out[i];
    out[i] = empty(y.shape, is_half(y.dtype) ? DType::f32 : y.dtype, y.device);
    args.out[i] = arg_of(out[i]);
  }
  args.dtype = DType::f32;
  run_forward(row, args);
  return describe(args.out[k]);
}

/// Whether what a result holds is what anomaly mode looks for.
bool wrong(unsigned kinds, const OpArgs& args, bool backward) {
  if (kinds == 0) return false;
  if (!backward) return kinds != kMinus || !(kinds_in(args.in, args.n_in) & kMinus);
  if (live_loss_scale() == 1) return true;
  return kinds & kNan && kinds_in(args.grad_out, args.n_out) == 0;
}

}  // namespace

void Anomaly::after_op(const OpRow& row, const OpArgs& args, bool backward) {
  if (outer_) outer_->after_op(row, args, backward);
  if (row.view && !backward) return;
  const Arg* results = backward ? args.grad_in : args.out;
  for (int k = 0; k < (backward ? args.n_in : row.returned); ++k) {
    unsigned kinds = kinds_in(results[k]);
    if (!wrong(kinds, args, backward)) continue;
    std::ostringstream text;
    text << "[" << row.name << (backward ? " backward] " : "] ") << (kinds & kNan ? "NaN" : "Inf")
         << " in " << (backward ? "the gradient of operand " : "result ") << k;
    if (backward) text << " '" << row.operands[size_t(k)].name << "'";
    if (const auto& module = ModuleScope::current()) text << ", in module " << *module;
    if (step_ >= 0) text << ", at step " << step_;
    if (backward && live_loss_scale() != 1) text << ", under loss scale " << live_loss_scale();
    text << "\n  it is " << describe(results[k]);
    if (!backward && is_half(results[k].dtype) && !(kinds & kNan))
      text << "\n  in fp32 it would be " << in_fp32(row, args, k);
    for (int o = 0; backward && o < args.n_out; ++o)
      if (args.grad_out[o].data)
        text << "\n  gradient of result " << o << ": " << describe(args.grad_out[o]);
    for (int i = 0; i < args.n_in; ++i)
      if (args.in[i].defined)
        text << "\n  operand " << i << " '" << row.operands[size_t(i)].name
             << "': " << describe(args.in[i]);
    throw Error(text.str());
  }
}

}  // namespace minim::autograd
