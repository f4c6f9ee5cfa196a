// optim/optimizer.h -- SGD, Adam and AdamW. State is fp32 (f64 for f64 parameters) whatever the
// parameter's dtype; 16-bit parameters have fp32 masters, or are rounded stochastically. One pass
// over memory per step: it reads the gradient, undoes the loss scale, clips, updates master and
// moments, and writes the parameter.
#pragma once
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "minim/amp/step.h"
#include "minim/optim/update.h"

namespace minim::optim {

using amp::StepRequest;
using amp::StepResult;

struct ParamGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {}, weight_decay = {};  ///< the optimizer's where not given
};

/// One table for all rules; a field that the rule does not read is refused when it differs from its
/// default.
struct Options {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};  ///< Adam, AdamW
  double eps = 1e-8;      ///< Adam, AdamW: added to the root, after the correction of bias
  double momentum = 0;    ///< SGD
  bool nesterov = false;  ///< SGD, with momentum
  std::optional<double> weight_decay = {};  ///< 0.01 for AdamW, else 0
  bool masters = false;  ///< an fp32 copy of each 16-bit parameter is what is updated
  bool stochastic_rounding =
      false;  ///< bf16 without master: up or down in proportion to the remainder
  bool allow_plain_half = false;  ///< 16-bit parameters without either: small updates are lost
  uint64_t seed = 0;              ///< of stochastic rounding
  bool fused = true;              ///< false: the reference, a loop per operation; the same bits
};

/// What differs between the optimizers.
struct Rule {
  const char* name;
  bool adaptive, decoupled;
  double weight_decay;
  std::array<const char*, 2> states;  ///< names in checkpoints
};
inline constexpr Rule kSGD{"sgd", false, false, 0, {"momentum", nullptr}};
inline constexpr Rule kAdam{"adam", true, false, 0, {"exp_avg", "exp_avg_sq"}};
inline constexpr Rule kAdamW{"adamw", true, true, 0.01, {"exp_avg", "exp_avg_sq"}};
/// @throws Error for another name than those.
const Rule& rule_named(std::string_view name);

using NamedState = std::pair<std::string, Tensor>;

class Optimizer : public amp::Stepper {
 public:
  /// @throws Error when a number is out of range, a parameter is given twice, is not floating, is a
  /// strided view, or is stored in 16 bits while the options do not say how.
  Optimizer(const Rule& rule, std::vector<ParamGroup> groups, const Options& options);

  std::vector<Tensor> parameters() const override { return params_; }
  void zero_grad();
  /// Updates every parameter that has a gradient. One value that is not finite, after unscaling and
  /// clipping, skips the whole step. @throws Error when no parameter has a gradient, or one carries
  /// another loss scale than the request's.
  StepResult step(const StepRequest& request) override;
  StepResult step() { return step(StepRequest{}); }

  void set_lr(double lr);  ///< of every group
  double lr(size_t group = 0) const { return *groups_[group].lr; }
  const std::vector<ParamGroup>& groups() const { return groups_; }
  /// Steps that were not skipped: what schedules and bias correction count.
  int64_t applied_steps() const { return counter(applied_); }

  /// The fp32 master of parameter i; undefined where there is none.
  Tensor master(size_t i) const { return slots_.at(i).master; }
  /// Takes exact fp32 values in place of the widened parameter, which becomes their rounding.
  /// @throws Error unless i has a master of that shape.
  void set_master(size_t i, const Tensor& values);

  /// Everything that a step reads beside parameters and gradients, shared with the optimizer;
  /// counters are 0-dim i64. Names are "<parameter>.<what>", with the parameter's number where it
  /// has no name.
  std::vector<NamedState> state() const;
  /// Copies into state(). @throws Error naming every missing or unexpected name, and every other
  /// shape or dtype; nothing is changed then.
  void load_state(const std::vector<NamedState>& saved);

 private:
  struct Slot {
    size_t group;
    Tensor master, states[2], steps;
  };
  template <class A>
  Constants<A> constants(const Slot& slot) const;
  template <class A, class F>
  void for_rule(F&& f) const;
  void apply(const std::vector<Tensor>& grads, const amp::Factors& factors);
  template <class A>
  void update(size_t i, const Tensor& grad, Index begin, Index end,
              const amp::Factors& factors) const;
  template <class A>
  void update_reference(size_t i, const Tensor& grad, const amp::Factors& factors) const;
  template <class A>
  void store(size_t i, Index begin, Index n, const A* values) const;
  void add_parameter(const Tensor& p, size_t group);
  static int64_t& counter(const Tensor& t) { return *static_cast<int64_t*>(t.data()); }

  Rule rule_;
  Options options_;
  std::vector<ParamGroup> groups_;
  std::vector<Tensor> params_;
  std::vector<Slot> slots_;  ///< one per parameter
  Tensor applied_;
};

template <const Rule& rule>
struct OptimizerOf : Optimizer {
  explicit OptimizerOf(std::vector<ParamGroup> groups, const Options& options = {})
      : Optimizer(rule, std::move(groups), options) {}
  explicit OptimizerOf(std::vector<Tensor> params, const Options& options = {})
      : Optimizer(rule, {{std::move(params), {}, {}}}, options) {}
};
using SGD = OptimizerOf<kSGD>;
using Adam = OptimizerOf<kAdam>;
using AdamW = OptimizerOf<kAdamW>;

}  // namespace minim::optim
