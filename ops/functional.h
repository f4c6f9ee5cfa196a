// ops/functional.h -- the public functions, one per row, expanded from the table: `softmax(x, {.dim
// = -1})`. The number of operands is checked by the compiler; attributes come last, in braces.
// Operators and composites stand at the end.
#pragma once
#include <array>

#include "minim/op_includes.h"  // written by CMake from ops.def: the header of each row
#include "minim/ops/call.h"

namespace minim {
namespace detail {

struct Nothing {};

/// The type of parameter i: tensors, then the attributes, then nothing.
template <class F, size_t i>
using Param = std::conditional_t<(i < kOperands<F>), const Tensor&,
                                 std::conditional_t<i == kOperands<F>, attrs_t<F>, Nothing>>;
/// What stands for a parameter that is not given; a compile error for an operand that must be.
template <class F, size_t i>
std::remove_cvref_t<Param<F, i>> absent() {
  if constexpr (i < kOperands<F>)
    static_assert(F::spec.operands[i].optional, "an operand is missing");
  return {};
}

template <class F, class... Ps>
auto call_with(const OpRow& row, Ps&&... params) {
  std::array<Tensor, kOperands<F>> operands;
  Attrs attrs;
  size_t at = 0;
  auto take = [&]<class P>(const P& p) {
    if constexpr (std::is_same_v<P, Tensor>)
      operands[at++] = p;
    else if constexpr (!std::is_same_v<P, Nothing>)
      attrs = Attrs(p);
  };
  (take(params), ...);
  std::array<Tensor, kOutputs<F>> out;
  call(row, operands, attrs, out);
  constexpr int n = F::spec.returned == Spec::kAll ? int(kOutputs<F>) : F::spec.returned;
  if constexpr (n == 1) {
    return std::move(out[0]);
  } else {
    std::array<Tensor, n> all;
    std::copy_n(out.begin(), n, all.begin());
    return all;
  }
}

}  // namespace detail

#define OP(name, F, ...)                                                           \
  template <class G = op::F>                                                       \
  auto name(detail::Param<G, 0> a, detail::Param<G, 1> b = detail::absent<G, 1>(), \
            detail::Param<G, 2> c = detail::absent<G, 2>(),                        \
            detail::Param<G, 3> d = detail::absent<G, 3>(),                        \
            detail::Param<G, 4> e = detail::absent<G, 4>(),                        \
            detail::Param<G, 5> f = detail::absent<G, 5>()) {                      \
    return detail::call_with<G>(Op::name, a, b, c, d, e, f);                       \
  }
#include "minim/ops/ops.def"
#undef OP

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }

}  // namespace minim
