// amp/autocast.h -- autocast: in a scope, each op's row says which dtype its floating operands get.
// The policy is data: a column of ops.def (`torch` follows PyTorch's CUDA lists on every device;
// `lean` keeps 16 bits where the kernel computes in fp32 inside anyway), and a scope may override
// single rows.
#pragma once
#include <initializer_list>
#include <string_view>
#include <unordered_map>

#include "minim/core/tensor.h"
#include "minim/ops/op.h"

namespace minim::amp {

enum class Policy : uint8_t { torch, lean };
const char* name_of(Policy policy);
/// @throws Error for another name than "torch" and "lean".
Policy policy_named(std::string_view name);

/// One row with another cast, for one scope: `Autocast on(DType::f16, {{Op::exp, Cast::keep}})`.
/// Every row takes every cast but `to`, whose caller names the dtype. In regions inside, whatever
/// their dtype and policy, it holds too, unless they override the row again.
struct Override {
  const OpRow& row;
  Cast cast;
};

class Autocast {
 public:
  /// @param lower f16 or bf16; f32 makes a region in which nothing is cast. @throws Error for
  /// another dtype, for an override of `to`, and for two of one row.
  explicit Autocast(DType lower, std::initializer_list<Override> overrides = {},
                    Policy policy = Policy::torch);
  Autocast(DType lower, Policy policy) : Autocast(lower, {}, policy) {}
  /// A region in which autocast is off, inside one in which it is on.
  struct Off {};
  static constexpr Off off{};
  explicit Autocast(Off) : Autocast(State{.overrides = state().overrides}) {}
  /// What a region is, for another one like it.
  struct State {
    bool enabled = false;
    DType lower = DType::f32;
    Policy policy = Policy::torch;
    std::unordered_map<const OpRow*, Cast> overrides = {};
  };
  explicit Autocast(State state);
  static State state();  ///< of the innermost region of this thread
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// The innermost active region of this thread; null where autocast is off.
  static Autocast* current();
  DType lower() const { return state_.lower; }
  Cast cast_of(const OpRow& row) const;
  bool overrides(const OpRow& row) const { return state_.overrides.contains(&row); }

  /// The cached 16-bit copy of a leaf. Keyed by the tensor, its version and the grad mode; shared
  /// by nested regions and dropped when the outermost one ends. In-place ops and optimizers count
  /// the version; whoever writes through span() or data() inside a region calls bump_version(), or
  /// the copy goes stale.
  Tensor find(const Tensor& leaf, DType to) const;
  void keep(const Tensor& leaf, const Tensor& copy) const;

 private:
  State state_;
  Autocast* outer_;
};

/// The dtype an op computes in and, as `convert`, whether its operands become that first, by a call
/// of `to`: where they are rounded, and where the row does not widen them as it loads them (those
/// that want one dtype, views, and where the operand says the result's dtype). A pure function of
/// the row's cast, the region (null: off) and the operands' dtypes; f64 operands are never cast.
struct Choice {
  DType dtype;
  bool convert = false;
};
Choice choose_dtype(const OpRow& row, const Autocast* region, std::span<const Typed> operands);

}  // namespace minim::amp
