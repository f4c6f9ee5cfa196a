#include "minim/ops/linear.h"

#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

MatrixRef matrix_of(const Arg& x) { return {x.data, x.dtype, x.strides[0], x.strides[1]}; }

void multiply(Index m, Index n, Index k, const MatrixRef& a, const MatrixRef& b, const Arg& to,
              const Arg* bias = nullptr) {
  GemmArgs g;
  g.m = m, g.n = n, g.k = k;
  g.a = a, g.b = b;
  g.c = to.data, g.c_dtype = to.dtype, g.c_row_stride = n;
  if (bias) g.bias = bias->data, g.bias_dtype = bias->dtype;
  gemm(g);
}

}  // namespace

void Linear::infer(OpArgs& args) {
  const Arg &x = args.in[0], &weight = args.in[1], &bias = args.in[2];
  for (int k = 0; k < args.n_in; ++k)
    if (args.in[k].defined && !is_floating(args.in[k].dtype))
      fail("[linear] ", operands[size_t(k)].name, " is ", name_of(args.in[k].dtype),
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
  const Arg &weight = args.in[1], &bias = args.in[2];
  const Rows x(args.in[0]);
  Scratch<std::byte> dense(bias.defined ? size_t(bias.shape.numel()) * size_of(bias.dtype) : 0);
  const Arg added{dense.data(), bias.dtype, bias.shape, {1}, true};
  if (bias.defined) copy(bias, added);
  multiply(x.count(), weight.shape[0], weight.shape[1], x.matrix(), transposed(matrix_of(weight)),
           args.out[0], bias.defined ? &added : nullptr);
}

void Linear::backward(OpArgs& args) {
  const Index out = args.in[1].shape[0], in = args.in[1].shape[1];
  const Rows g(args.grad_out[0]);
  if (args.grad_in[1].data) {
    const Rows x(args.in[0]);
    multiply(out, in, g.count(), transposed(g.matrix()), x.matrix(), args.grad_in[1]);
  }
  if (args.grad_in[0].data)
    multiply(g.count(), in, out, g.matrix(), matrix_of(args.in[1]), args.grad_in[0]);
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
