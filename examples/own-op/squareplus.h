// squareplus.h -- an op of this program: (x + sqrt(x^2 + b)) / 2, a smooth relu (Barron,
// "Squareplus: A Softplus-Like Algebraic Rectifier", 2021).
#pragma once
#include <minim/minim.h>
#include <minim/ops/row.h>

/// The value and what backward does, on one scalar; minim makes kernels for every dtype from it.
struct Squareplus {
  static constexpr size_t arity = 1;
  static constexpr minim::Saves saves{.inputs = 0b1};  // backward reads x
  struct Attrs {
    double b = 4;
  };
  template <class A>
  MINIM_HD static A forward(const Attrs& attrs, A x) {
    const A b = A(attrs.b), root = minim::math::sqrt(x * x + b);
    // For negative x the same without the difference of two numbers that are almost equal.
    return minim::math::select(x < A(0), b / (A(2) * (root - x)), (x + root) / A(2));
  }
  template <class A>
  MINIM_HD static void vjp(const Attrs& attrs, A g, A /*y*/, A x, A* d) {
    const A root = minim::math::sqrt(x * x + A(attrs.b));
    d[0] = g * (A(1) + x / root) / A(2);
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
