#include "minim/ops/linear.h"

#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

MatrixRef matrix_of(const Arg& x) { return {x.data, x.dtype, x.strides[0], x.strides[1]}; }

}  // namespace

void Linear::infer(OpArgs& args) {
  const Arg &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  for (int k = 0; k < args.n_in; ++k)
    if (args.in[k].defined && !is_floating(args.in[k].dtype))
      fail("[linear] ", spec.operands[size_t(k)].name, " is ", name_of(args.in[k].dtype),
           args.in[k].shape, "; it takes floating operands: convert with .to()");
  if (weight.shape.rank() != 2) fail("[linear] weight must be (out, in), not ", weight.shape);
  const Index out = weight.shape[0], in = weight.shape[1];
  if (x.shape.rank() == 0 || x.shape[x.shape.rank() - 1] != in)
    fail("[linear] x ", x.shape, " does not fit weight ", weight.shape, ": its last size must be ",
         in);
  if (bias.defined && !(bias.shape == Shape{out}))
    fail("[linear] bias ", bias.shape, " does not fit weight ", weight.shape, ": it must be ",
         Shape{out});
  args.out[0].shape = x.shape;
  args.out[0].shape[x.shape.rank() - 1] = out;
}

void Linear::forward(OpArgs& args) {
  const Arg &weight = args.in[1], &y = args.out[0];
  const Index out = weight.shape[0], in = weight.shape[1];
  const Rows x(args.in[0]);
  const Dense bias(args.in[2]);
  gemm({x.count(), out, in, x.matrix(), transposed(matrix_of(weight)), y.data, y.dtype, out,
        bias.arg.data, bias.arg.dtype});
}

void Linear::backward(OpArgs& args) {
  const Index out = args.in[1].shape[0], in = args.in[1].shape[1];
  const Rows g(args.grad_out[0]);
  if (const Arg& d = args.grad_in[1]; d.data)
    product(out, in, g.count(), 1, transposed(g.matrix()), Rows(args.in[0]).matrix(), d.data,
            d.dtype);
  if (const Arg& d = args.grad_in[0]; d.data)
    product(g.count(), in, out, 1, g.matrix(), matrix_of(args.in[1]), d.data, d.dtype);
  if (args.grad_in[2].data) sum_to(g.arg, args.grad_in[2]);
}

std::vector<Example> Linear::examples() {
  Examples<> all;
  all.add({{3, 4}, {5, 4}, {5}});
  all.add({{3, 4}, {5, 4}, all.none});
  all.add({{4}, {5, 4}, {5}});  // a single position
  all.add({{2, 3, 4}, {5, 4}, {5}});
  all.add({{2, 3, 4}, {1, 4}, all.none});
  all.add({{0, 4}, {5, 4}, {5}});  // no position
  all.add({{3, 0}, {2, 0}, {2}});  // no feature: the bias alone
  return all;
}

}  // namespace minim::op
