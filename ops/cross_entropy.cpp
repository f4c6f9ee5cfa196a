#include "minim/ops/cross_entropy.h"

#include "minim/core/rowwise.h"
#include "minim/ops/class_loss_struct.h"

namespace minim::op {
namespace {

/// Position r's logits and target.
template <class A>
struct Positions {
  const Arg& logits;
  CrossEntropy::Attrs attrs;
  Indices target;
  Index classes, grain;
  Strides steps;

  explicit Positions(const OpArgs& args)
      : logits(args.in[0]),
        attrs(args.attrs.as<CrossEntropy::Attrs>()),
        target(args.in[1]),
        classes(logits.shape[logits.shape.rank() - 1]),
        grain(std::max<Index>(1, 4096 / std::max<Index>(1, classes))),
        steps(leading(logits.strides, 1)) {}
  bool counts(Index r) const { return target[r] != attrs.ignore_index; }
  const A* load(Index r, A* buffer) const {
    const Index at = offset_of(r, leading(logits.shape, 1), steps);
    return load_run(advance(logits.data, logits.dtype, at), logits.dtype,
                    logits.strides[steps.rank()], classes, buffer);
  }
};

template <class A>
struct RowLoss {
  A loss, log_sum;  ///< log of sum exp(x - largest)
};
template <class A>
A largest_of(const A* x, Index n) {
  return max16<A>(n, [=](Index j) { return x[j]; });
}

/// A class at -inf has no part in label smoothing.
template <class A>
bool is_masked(A logit) {
  return logit == -std::numeric_limits<A>::infinity();
}
template <class A>
A finite_classes(const A* x, Index n) {
  return sum16<A>(n, [=](Index j) { return is_masked(x[j]) ? A(0) : A(1); });
}

/// The mean distance to the largest of the classes that are not masked, where their sum leaves A.
template <class A>
[[gnu::noinline]] A mean_below(const A* x, Index n, A largest) {
  using W = Wider<A>;
  const W below =
      sum16<W>(n, [=](Index j) { return is_masked(x[j]) ? W(0) : W(largest) - W(x[j]); });
  return A(below / W(finite_classes(x, n)));
}

template <class A>
struct RowForward {
  /// @param powers room for n numbers
  static void run(const A* x, Index n, Index target, A smoothing, A* powers, RowLoss<A>* row) {
    const A largest = largest_of(x, n);
    many(n, x, [=](Index j) { powers[j] = math::exp_negative(x[j] - largest); });
    const A log_sum = math::log(sum16<A>(n, [=](Index j) { return powers[j]; }));
    A loss = (largest - x[target]) + log_sum;
    if (smoothing > A(0)) {
      const A below = sum16<A>(n, [=](Index j) { return is_masked(x[j]) ? A(0) : largest - x[j]; });
      const A mean =
          (is_finite(below) ? below / finite_classes(x, n) : mean_below(x, n, largest)) + log_sum;
      loss = (smoothing == A(1) ? A(0) : (A(1) - smoothing) * loss) + smoothing * mean;
    }
    *row = {loss, log_sum};
  }
};

template <class A>
void forward_in(OpArgs& args) {
  const Positions<A> p(args);
  p.target.check("cross_entropy", "target", p.classes, p.attrs.ignore_index);
  const Index rows = p.target.size();
  Scratch<A> losses{size_t(rows)};
  A* log_sums = static_cast<A*>(args.out[1].data);
  parallel_for(rows, p.grain, [&](Index begin, Index end) {
    Scratch<A> buffer(2 * size_t(p.classes));
    for (Index r = begin; r < end; ++r) {
      RowLoss<A> row{};
      if (p.counts(r))
        per_isa<A, RowForward<A>>(p.load(r, buffer.data()), p.classes, p.target[r],
                                  A(p.attrs.label_smoothing), buffer.data() + p.classes, &row);
      losses[size_t(r)] = row.loss;
      log_sums[r] = row.log_sum;
    }
  });
  const Index valid = p.target.counted(p.attrs.ignore_index);
  *static_cast<A*>(args.out[2].data) = A(valid);
  store_class_loss(args.out[0], p.attrs.reduction, losses.data(), rows, valid, "cross_entropy");
}

/// d = scale * (softmax(x) - smoothed target). The largest logit is found again rather than saved
/// in a sum with log_sum, whose rounding would be an error of every probability.
template <class A>
struct RowBackward {
  static void run(const A* x, Index n, Index target, A smoothing, A log_sum, A scale, A* d) {
    const A largest = largest_of(x, n);
    auto p = [=](Index j) { return math::exp_negative((x[j] - largest) - log_sum); };
    if (smoothing == A(0)) {
      many(n, x, [=](Index j) { d[j] = scale * p(j); });
      d[target] = scale * (p(target) - A(1));
      return;
    }
    const A uniform = smoothing / finite_classes(x, n);
    auto excess = [=](Index j) { return p(j) - (is_masked(x[j]) ? A(0) : uniform); };
    many(n, x, [=](Index j) { d[j] = scale * excess(j); });
    d[target] = scale * (excess(target) - (A(1) - smoothing));
  }
};

template <class A>
void backward_in(OpArgs& args) {
  const Positions<A> p(args);
  const Arg &g = args.grad_out[0], &to = args.grad_in[0];
  const A* log_sums = static_cast<const A*>(args.out[1].data);
  const A valid = *static_cast<const A*>(args.out[2].data);
  auto slope = [&](Index r) { return class_loss_slope(g, p.attrs.reduction, r, valid); };
  parallel_for(p.target.size(), p.grain, [&](Index begin, Index end) {
    Scratch<A> buffer(2 * size_t(p.classes));
    for (Index r = begin; r < end; ++r) {
      void* row = advance(to.data, to.dtype, r * p.classes);
      A* d = to.dtype == dtype_for<A>() ? static_cast<A*>(row) : buffer.data() + p.classes;
      if (p.counts(r) && slope(r) != A(0))
        per_isa<A, RowBackward<A>>(p.load(r, buffer.data()), p.classes, p.target[r],
                                   A(p.attrs.label_smoothing), log_sums[r], slope(r), d);
      else
        std::fill(d, d + p.classes, A(0));
      store_run(row, to.dtype, 1, p.classes, d);
    }
  });
}

}  // namespace

void CrossEntropy::infer(OpArgs& args) {
  const Attrs& attrs = args.attrs.as<Attrs>();
  infer_class_loss(args, attrs.reduction, "cross_entropy", "logits");
  if (!(attrs.label_smoothing >= 0 && attrs.label_smoothing <= 1))
    fail("[cross_entropy] label_smoothing must be in [0, 1], not ", attrs.label_smoothing);
  args.out[1].shape = args.in[1].shape;
  args.out[2].shape = Shape{};
}

void CrossEntropy::forward(OpArgs& args) {
  run_floating(args, forward_in<float>, forward_in<double>);
}
void CrossEntropy::backward(OpArgs& args) {
  run_floating(args, backward_in<float>, backward_in<double>);
}

std::vector<Example> CrossEntropy::examples() {
  Examples<Attrs> all;
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (double smoothing : {0.0, 0.1}) all.add({{4, 5}, {4}}, {smoothing, -100, reduction}, 5);
  all.add({{2, 3, 7}, {2, 3}}, {}, 7);
  all.add({{3}, {}}, {}, 3);                           // one position
  all.add({{6, 3}, {6}}, {0, 1, Reduction::mean}, 3);  // class 1 is ignored
  all.add({{6, 3}, {6}}, {0.2, 1, Reduction::none}, 3);
  all.add({{3, 1}, {3}}, {}, 1);
  all.add({{0, 4}, {0}}, {}, 4);
  return all;
}

}  // namespace minim::op
