// squareplus.h -- an op of this program: (x + sqrt(x^2 + b)) / 2, a smooth relu (Barron,
// "Squareplus: A Softplus-Like Algebraic Rectifier", 2021).
#pragma once
#include <minim/minim.h>
#include <minim/ops/row.h>

/// The value and what backward does, on one scalar; minim makes kernels for every dtype from it.
struct Squareplus : minim::op::Pointwise {
  static constexpr minim::Spec spec{.operands = {{"x"}},
                                    .saves = {.inputs = 0b1}};  // backward reads x
  struct Attrs {
    double b = 4;
  };
  /// root = sqrt(x^2 + b) without the square, which need not fit, and the value at -|x|,
  /// (root - |x|) / 2, without the difference, which would lose its digits.
  template <class A>
  struct Tail {
    A root, value;
    MINIM_HD Tail(const Attrs& attrs, A x) {
      const A size = minim::math::fabs(x), b = A(attrs.b), corner = minim::math::sqrt(b);
      const A large = size < corner ? corner : size, small = size < corner ? size : corner;
      root = large * minim::math::sqrt(A(1) + small / large * (small / large));
      value = b / A(2) / root / (A(1) + size / root);
    }
  };
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x) {
    return minim::math::select(x < A(0), A(0), x) + Tail<A>(attrs, x).value;
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A /*y*/, A x, A* d) {
    const Tail<A> t(attrs, x);
    const A slope = t.value / t.root;  // at -|x|
    d[0] = g * minim::math::select(x < A(0), slope, A(1) - slope);
  }
};

/// Its policy row: name, cast under the policies torch and lean, error constant, why. It is the
/// op's identity, and this is all that the built-in rows have.
inline constexpr minim::OpRow squareplus_row = minim::make_row<Squareplus>(
    "squareplus", minim::Cast::keep, minim::Cast::keep, 4,
    "within sqrt(b) / 2 of relu, so no larger than its operand; fp32 inside");

inline minim::Tensor squareplus(const minim::Tensor& x, Squareplus::Attrs attrs = {}) {
  return minim::call(squareplus_row, {&x, 1}, minim::Attrs(attrs))[0];
}
