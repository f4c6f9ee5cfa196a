// Chapter 5: views, strides, versions, promotion, in place.
#include <iostream>

#include "minim/autograd/node.h"
#include "minim/docs/examples/expect.h"
#include "minim/ops/functional.h"

using namespace minim;

void show(const char* what, const Tensor& x) {
  std::cout << "       " << what << ": shape " << x.shape() << ", strides " << x.strides()
            << ", offset " << x.impl()->offset << '\n';
}

void views() {
  Tensor x = arange(12, DType::f32).reshape({3, 4});
  Tensor t = x.transpose(0, 1), column = x.select(1, 2), even = x.slice(1, 0, 4, 2);
  Tensor wide = x.slice(0, 0, 1).expand({5, 4});
  show("x", x), show("transpose", t), show("column 2", column), show("every other", even);
  show("row 0, five times", wide);
  expect("a transpose swaps strides and moves nothing",
         t.strides() == Strides{1, 4} && t.impl()->storage == x.impl()->storage);
  expect("column 2 begins at element 2 and steps by a row",
         column.impl()->offset == 2 && column.strides() == Strides{4});
  expect("expand repeats with stride 0", wide.strides() == Strides{0, 1});
  x.select(0, 0).fill_(7);
  expect("writing through a view writes the tensor", t.select(1, 0).to_vector()[3] == 7);
  expect("reshape is a view where strides allow it",
         x.reshape({2, 6}).impl()->storage == x.impl()->storage);
  expect("and a copy where they do not", t.reshape({12}).impl()->storage != x.impl()->storage);
  expect_error("span() is for what is dense", "contiguous", [&] { t.span<float>(); });
}

void versions() {
  Tensor x = ones({3}), row = x.slice(0, 0, 1);
  row.add_(1);
  expect("a view counts its writes with the whole", x.version() == 1 && row.version() == 1);

  Tensor w = ones({3}).set_requires_grad(), y = x * w;  // backward of w reads x
  x.mul_(2);
  expect_error("backward refuses what was changed since", "version", [&] { sum(y).backward(); });
  expect_error("a leaf is not changed in place", "NoGrad", [&] { w.add_(1); });
  {
    NoGrad off;
    w.add_(1);
  }
  expect("but under NoGrad it is", w.to_vector()[0] == 2);
  Tensor buf = ones({3});
  expect_error("nor written in place elsewhere: its gradient would be lost", "x = x * y",
               [&] { buf.mul_(w); });
  expect_error("into a view neither", "copy_", [&] { buf.slice(0, 0, 1).copy_(w.slice(0, 1, 2)); });
  expect("what is detached is", buf.mul_(w.detach()).to_vector()[0] == 2);
  Tensor n = ones({2}, DType::i64);
  expect_error("nor does a store change the kind of number", "cannot store", [&] { n.add_(0.5); });
}

void promotion() {
  Tensor half = ones({2}, DType::f16), brain = ones({2}, DType::bf16), whole = arange(2);
  Tensor zero_dim = full({}, 1, DType::f64);
  expect("f16 + bf16 is f32", (half + brain).dtype() == DType::f32);
  expect("f16 + i64 is f16", (half + whole).dtype() == DType::f16);
  expect("i64 + 1.5 is f32", (whole + 1.5).dtype() == DType::f32);
  expect("f16 + a 0-dim f64 is f16", (half + zero_dim).dtype() == DType::f16);
  expect_error("a number must fit", "does not fit", [&] { half * 1e9; });
}

int main() {
  views();
  versions();
  promotion();
}
