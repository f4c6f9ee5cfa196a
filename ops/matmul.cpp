#include "minim/ops/matmul.h"

#include <vector>

#include "minim/ops/matrix.h"

namespace minim::op {
namespace {

/// x (..., M, K) and y (..., K, N), and `out`, which is the result or its gradient, as matrices
/// over a batch.
struct Product {
  Arg x, y, out;
  Shape batch;
  Index m, k, n;
  std::unique_ptr<Rows> joined[2];  ///< where x and out had to be copied to become one matrix

  /// @param copies whether they may: the gradient of a shared y is one sum over all rows, whatever
  /// the strides are.
  Product(const OpArgs& args, const Arg& result, bool copies)
      : x(args.in[0]), y(args.in[1]), out(result) {
    if (y.shape.rank() == 1) add_axis(y, 1), add_axis(out, out.shape.rank());
    if (args.in[0].shape.rank() == 1) add_axis(x, 0), add_axis(out, out.shape.rank() - 1);
    m = x.shape[x.shape.rank() - 2];
    k = y.shape[y.shape.rank() - 2];
    n = y.shape[y.shape.rank() - 1];
    if (leading(y.shape, 2).numel() == 1) join(copies);
    batch = leading(out.shape, 2);
  }

  static void add_axis(Arg& a, int at) {
    a.shape.insert(at, 1);
    a.strides.insert(at, 0);
  }
  /// One y for the whole batch: all rows of x are one matrix.
  void join(bool copies) {
    Arg rows = x, results = out;
    if (copies) {
      x = (joined[0] = std::make_unique<Rows>(x))->arg;
      out = (joined[1] = std::make_unique<Rows>(out))->arg;
    } else {
      if (!join_rows(rows) || !join_rows(results)) return;
      x = rows;
      out = results;
    }
    y.shape = {k, n};
    y.strides = Strides(std::span(y.strides.end() - 2, 2));
    m = x.shape[0];
  }
  /// The gradient of x or y; it is dense.
  static Arg like(const Arg& operand, Arg gradient) {
    gradient.shape = operand.shape;
    gradient.strides = contiguous_strides(operand.shape);
    return gradient;
  }
};

void multiply(const Shape& batch, const Matrices& a, bool a_transposed, const Matrices& b,
              bool b_transposed, const Matrices& c, Index m, Index n, Index k) {
  std::vector<GemmArgs> products(size_t(batch.numel()));
  for (size_t i = 0; i < products.size(); ++i) {
    GemmArgs& g = products[i];
    g.m = m, g.n = n, g.k = k;
    g.a = a_transposed ? transposed(a[Index(i)]) : a[Index(i)];
    g.b = b_transposed ? transposed(b[Index(i)]) : b[Index(i)];
    g.c = c.data(Index(i));
    g.c_dtype = c.dtype();
    g.c_row_stride = c.row_stride();
  }
  gemm_batched(products);
}

/// Calls product(c) with the place for a gradient over the whole batch; what was broadcast is then
/// summed in A.
template <class A, class F>
void gradient(const Shape& batch, const Arg& to, F product) {
  if (leading(to.shape, 2) == batch) return product(Matrices(to, batch));
  Shape shape = batch;
  for (int i = to.shape.rank() - 2; i < to.shape.rank(); ++i) shape.push_back(to.shape[i]);
  Scratch<A> full(size_t(shape.numel()));
  product(Matrices({full.data(), dtype_for<A>(), shape, contiguous_strides(shape), true}, batch));
  sum_to(static_cast<const A*>(full.data()), shape, to);
}

template <class A>
void backward_in(OpArgs& args) {
  const Product p(args, args.grad_out[0], true);
  const Matrices x(p.x, p.batch), y(p.y, p.batch), g(p.out, p.batch);
  if (args.grad_in[0].data)
    gradient<A>(p.batch, Product::like(p.x, args.grad_in[0]), [&](const Matrices& dx) {
      multiply(p.batch, g, false, y, true, dx, p.m, p.k, p.n);
    });
  if (args.grad_in[1].data)
    gradient<A>(p.batch, Product::like(p.y, args.grad_in[1]), [&](const Matrices& dy) {
      multiply(p.batch, x, true, g, false, dy, p.k, p.n, p.m);
    });
}

}  // namespace

void MatMul::infer(OpArgs& args) {
  const Shape &x = args.in[0].shape, &y = args.in[1].shape;
  for (int i = 0; i < 2; ++i) {
    if (!is_floating(args.in[i].dtype))
      fail("[matmul] takes floating operands, not ", name_of(args.in[i].dtype), args.in[i].shape,
           "; convert with .to()");
  }
  if (x.rank() == 0 || y.rank() == 0)
    fail("[matmul] takes vectors and matrices, not shapes ", x, " and ", y,
         "; multiply by a number with *");
  const bool row = x.rank() == 1, column = y.rank() == 1;
  const Index k = x[x.rank() - 1], y_k = y[column ? 0 : y.rank() - 2];
  if (k != y_k)
    fail("[matmul] the inner sizes of ", x, " and ", y, " differ: the last of x is ", k, ", ",
         column ? "the only one" : "the last but one", " of y is ", y_k);
  const std::string what = "matmul of " + to_string(x) + " and " + to_string(y);
  Shape out = broadcast(leading(x, row ? 1 : 2), leading(y, column ? 1 : 2), what.c_str());
  if (!row) out.push_back(x[x.rank() - 2]);
  if (!column) out.push_back(y[y.rank() - 1]);
  args.out[0].shape = out;
}

void MatMul::forward(OpArgs& args) {
  const Product p(args, args.out[0], false);
  const Matrices x(p.x, p.batch), y(p.y, p.batch), out(p.out, p.batch);
  multiply(p.batch, x, false, y, false, out, p.m, p.n, p.k);
}

void MatMul::backward(OpArgs& args) { run_floating(args, backward_in<float>, backward_in<double>); }

std::vector<Example> MatMul::examples() {
  Examples<> all;
  all.add({{2, 3}, {3, 4}});
  all.add({{3}, {3}});
  all.add({{3}, {3, 4}});
  all.add({{2, 3}, {3}});
  all.add({{4}, {2, 4, 3}});
  all.add({{2, 3, 4}, {4}});
  all.add({{2, 3, 4}, {4, 5}});     // one matrix for all
  all.add({{2, 3, 4}, {2, 4, 5}});  // a batch
  all.add({{3, 4}, {2, 4, 2}});     // broadcast batches
  all.add({{2, 1, 3, 4}, {3, 4, 2}});
  all.add({{1, 3, 4}, {2, 4, 1}});
  all.add({{2, 3, 4}, {1, 4, 2}});
  all.add({{0, 3}, {3, 2}});  // empty
  all.add({{2, 0}, {0, 3}});
  return all;
}

}  // namespace minim::op
