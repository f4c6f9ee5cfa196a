// core/promotion.h -- which dtype a mixed operation has. Values are never looked at.
#pragma once
#include <span>

#include "minim/core/dtype.h"

namespace minim {

namespace detail {
using enum DType;
inline constexpr DType kPromotion[kDTypes][kDTypes] = {
    //           boolean u8    i32   i64   f16  bf16  f32  f64  f8e4m3  f8e5m2
    /*boolean*/ {boolean, u8, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2},
    /*u8     */ {u8, u8, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2},
    /*i32    */ {i32, i32, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2},
    /*i64    */ {i64, i64, i64, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2},
    /*f16    */ {f16, f16, f16, f16, f16, f32, f32, f64, f32, f32},
    /*bf16   */ {bf16, bf16, bf16, bf16, f32, bf16, f32, f64, f32, f32},
    /*f32    */ {f32, f32, f32, f32, f32, f32, f32, f64, f32, f32},
    /*f64    */ {f64, f64, f64, f64, f64, f64, f64, f64, f64, f64},
    /*f8e4m3 */ {f8e4m3, f8e4m3, f8e4m3, f8e4m3, f32, f32, f32, f64, f8e4m3, f32},
    /*f8e5m2 */ {f8e5m2, f8e5m2, f8e5m2, f8e5m2, f32, f32, f32, f64, f32, f8e5m2},
};
}  // namespace detail

/// The smallest dtype that both promote to; integers never widen a float; f16 with bf16 is f32,
/// and so is an f8 with any other float of at most 32 bits (a common 16-bit type would not be
/// associative).
/// Commutative, idempotent and associative, so it may be folded over a list in any order.
constexpr DType promote_types(DType a, DType b) { return detail::kPromotion[size_t(a)][size_t(b)]; }

/// How strongly an operand speaks: a tensor with dimensions, a 0-dim tensor, or a number of the
/// language.
enum class Rank : uint8_t { dimensioned, zero_dim, scalar };
struct Typed {
  DType dtype;
  Rank rank = Rank::dimensioned;
};

/// The result dtype of an operation on all of `operands` (at least one). A weaker bucket only
/// matters where it has the higher category: half[2] + f64 0-dim is half, i64[2] + 1.5 is f32.
/// Language floats enter as f32, integers as i64.
constexpr DType result_type(std::span<const Typed> operands) {
  DType bucket[3] = {};
  bool filled[3] = {};
  for (const Typed& t : operands) {
    size_t r = size_t(t.rank);
    DType d = t.rank == Rank::scalar && is_floating(t.dtype) ? DType::f32 : t.dtype;
    bucket[r] = filled[r] ? promote_types(bucket[r], d) : d;
    filled[r] = true;
  }
  DType result = DType::boolean;
  bool any = false;
  for (size_t r = 3; r-- > 0;) {  // from the weakest to the strongest
    if (!filled[r]) continue;
    bool stronger_wins = any && info(bucket[r]).category >= info(result).category &&
                         info(bucket[r]).category != Category::boolean;
    result = !any || stronger_wins ? bucket[r] : promote_types(bucket[r], result);
    any = true;
  }
  return result;
}

}  // namespace minim
