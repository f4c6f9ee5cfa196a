#include "minim/ops/nll_loss.h"

#include "minim/ops/class_loss_struct.h"

namespace minim::op {
namespace {

template <class A>
void forward_in(OpArgs& args) {
  const auto& attrs = args.attrs.as<NllLoss::Attrs>();
  const Arg& x = args.in[0];
  const int last = x.shape.rank() - 1;
  const Indices target(args.in[1]);
  target.check("nll_loss", "target", x.shape[last], attrs.ignore_index);
  Scratch<A> losses{size_t(target.size())};
  for (Index r = 0; r < target.size(); ++r) {
    A buffer = 0, *loss = &losses[size_t(r)];
    *loss = 0;
    if (target[r] == attrs.ignore_index) continue;
    const Index at =
        offset_of(r, leading(x.shape, 1), leading(x.strides, 1)) + target[r] * x.strides[last];
    *loss = -*load_run(advance(x.data, x.dtype, at), x.dtype, 1, 1, &buffer);
  }
  store_class_loss(args.out[0], attrs.reduction, losses.data(), target.size(),
                   target.counted(attrs.ignore_index), "nll_loss");
}

template <class A>
void backward_in(OpArgs& args) {
  const auto& attrs = args.attrs.as<NllLoss::Attrs>();
  const Arg& to = args.grad_in[0];
  const Indices target(args.in[1]);
  const Index classes = to.shape[to.shape.rank() - 1];
  const A valid = A(target.counted(attrs.ignore_index));
  fill_zero(to);
  for (Index r = 0; r < target.size(); ++r) {
    if (target[r] == attrs.ignore_index) continue;
    const A d = -class_loss_slope(args.grad_out[0], attrs.reduction, r, valid);
    store_run(advance(to.data, to.dtype, r * classes + target[r]), to.dtype, 1, 1, &d);
  }
}

}  // namespace

void NllLoss::infer(OpArgs& args) {
  infer_class_loss(args, args.attrs.as<Attrs>().reduction, "nll_loss", "log-probabilities");
}

void NllLoss::forward(OpArgs& args) { run_floating(args, forward_in<float>, forward_in<double>); }
void NllLoss::backward(OpArgs& args) {
  run_floating(args, backward_in<float>, backward_in<double>);
}

std::vector<Example> NllLoss::examples() {
  Examples<Attrs> all;
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    all.add({{4, 5}, {4}}, {-100, reduction}, 5);
    all.add({{6, 3}, {6}}, {1, reduction}, 3);  // class 1 is ignored
    all.add({{0, 4}, {0}}, {-100, reduction}, 4);
  }
  all.add({{2, 3, 7}, {2, 3}}, {}, 7);
  all.add({{3}, {}}, {}, 3);  // one position
  return all;
}

}  // namespace minim::op
