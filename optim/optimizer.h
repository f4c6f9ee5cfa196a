// optim/optimizer.h -- SGD, Adam, AdamW and Muon. State is fp32 (f64 for f64 parameters) whatever
// the parameter's dtype; 16-bit parameters have fp32 masters, or are rounded stochastically. One
// pass over memory per step: it reads the gradient, undoes the loss scale, clips, updates master
// and moments, and writes the parameter.
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

enum class Kind : uint8_t { sgd, adam, muon };

/// What differs between the optimizers.
struct Rule {
  const char* name;
  Kind kind;
  bool decoupled;                     ///< decay shrinks the parameter and is no part of g
  double weight_decay, momentum;      ///< where the options do not say
  std::array<const char*, 3> states;  ///< names in checkpoints
};
inline constexpr Rule kSGD{"sgd", Kind::sgd, false, 0, 0, {"momentum"}};
inline constexpr Rule kAdam{"adam", Kind::adam, false,
                            0,      0,          {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}};
inline constexpr Rule kAdamW{"adamw", Kind::adam, true, 0.01, 0, kAdam.states};
/// For 2-D hidden matrices only (optim/muon.h); embeddings, heads, norms and biases belong in a
/// group whose rule is kAdamW.
inline constexpr Rule kMuon{"muon", Kind::muon, true, 0.1, 0.95, {"momentum"}};
/// @throws Error for another name than those.
const Rule& rule_named(std::string_view name);

struct ParamGroup {
  std::vector<Tensor> params;  ///< one that is given again is the same one
  /// The optimizer's where not given. set_lr() keeps the proportions of the groups' rates.
  std::optional<double> lr = {}, weight_decay = {};
  const Rule* rule = nullptr;  ///< one of the above; the optimizer's if null
};

/// One table for all rules; a field that no group's rule reads is refused when it differs from its
/// default.
struct Options {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};  ///< Adam, AdamW
  double eps = 1e-8;     ///< Adam, AdamW: added to the root, after the correction of bias
  bool amsgrad = false;  ///< Adam, AdamW: divide by the largest second moment so far
  std::optional<double> momentum = {};  ///< 0 for SGD, 0.95 for Muon
  bool nesterov = false;                ///< SGD, with momentum; Muon always looks ahead so
  bool match_adamw_rms = false;  ///< Muon: steps as large as AdamW's, so that one lr fits both
  bool maximize = false;         ///< go up: the gradient with the other sign
  std::optional<double> weight_decay = {};  ///< 0.01 for AdamW, 0.1 for Muon, else 0
  /// An fp32 copy of each 16-bit parameter is what is updated; where somebody else has written the
  /// parameter since, it takes the written value first.
  bool masters = false;
  bool stochastic_rounding =
      false;  ///< bf16 without master: up or down in proportion to the remainder
  bool allow_plain_half = false;  ///< 16-bit parameters without either: small updates are lost
  uint64_t seed = 0;              ///< of stochastic rounding
  bool fused = true;              ///< false: the reference, a loop per operation; the same bits
};

/// Each parameter's name, or its number where it has none; where one before it has that already,
/// with "#" and its number: "weight#2".
std::vector<std::string> keys_of(std::span<const Tensor> params);

/// Whether an average stands in for the values (optim/ema.h).
bool is_averaged(const Tensor& param);

using NamedState = std::pair<std::string, Tensor>;
/// Copies `saved` into `mine`, by name. @throws Error, with `who` in front, naming every missing or
/// unexpected name, what is given twice, every other shape or dtype, and a count below 0; nothing
/// is changed then.
void copy_state(const char* who, const std::vector<NamedState>& saved,
                const std::vector<NamedState>& mine);

class Optimizer : public amp::Stepper {
 public:
  /// @throws Error when a number is out of range, or of that of the dtype that a parameter is
  /// updated in, or when a parameter is in two groups, shares memory with another, was made by an
  /// op, is not floating, is a strided view, or is stored in 16 bits while the options do not say
  /// how.
  Optimizer(const Rule& rule, std::vector<ParamGroup> groups, const Options& options);

  std::vector<Tensor> parameters() const override { return params_; }  ///< each once
  void zero_grad();
  /// Updates every parameter that has a gradient. One value that is not finite, after unscaling and
  /// clipping, skips the whole step. @throws Error when no parameter has a gradient, or one carries
  /// another loss scale than the request's, or averages stand in for the weights (optim/ema.h).
  StepResult step(const StepRequest& request) override;
  StepResult step() { return step(StepRequest{}); }

  /// The rate in place of options.lr: a group with a rate of its own gets that times lr /
  /// options.lr. @throws Error unless lr is in [0, inf), and where options.lr is 0 but a group's
  /// rate is not, so that there is no proportion.
  void set_lr(double lr);
  double lr(size_t group = 0) const;
  const std::vector<ParamGroup>& groups() const { return groups_; }  ///< with the rates given
  /// Steps that were not skipped: what schedules and bias correction count.
  int64_t applied_steps() const { return counter(applied_); }

  /// The fp32 master of parameter i; undefined where there is none. Its rounding is the parameter:
  /// where that was written by somebody else, here is the value that the next step will start from.
  Tensor master(size_t i) const;
  /// Takes exact fp32 values in place of the widened parameter, which becomes their rounding.
  /// @throws Error unless i has a master of that shape.
  void set_master(size_t i, const Tensor& values);

  /// Everything that a step reads beside parameters, gradients and options, shared with the
  /// optimizer; counters are 0-dim i64, "lr" is f64: the rate that set_lr() gave last. Names are
  /// "<parameter>.<what>", the former by keys_of().
  std::vector<NamedState> state() const;
  /// A state without "lr" leaves the rate as it is. @throws Error as copy_state, and for a rate
  /// that set_lr() refuses.
  void load_state(std::vector<NamedState> saved);

 private:
  struct Slot {
    size_t group;
    Tensor master, states[3], steps;
  };
  const Rule& rule_of(size_t i) const { return *groups_[slots_[i].group].rule; }
  template <class A>
  Constants<A> constants(size_t i) const;
  void apply(std::vector<Tensor> grads, amp::Factors factors);
  template <class A>
  void update(size_t i, const Tensor& grad, Index begin, Index end,
              const amp::Factors& factors) const;
  template <class A>
  /// @param room for five numbers to an element
  void update_reference(size_t i, const Tensor& grad, const amp::Factors& factors, A* room) const;
  template <class A>
  void store(size_t i, Index begin, Index n, const A* values) const;
  void check_rate(const char* what, double lr) const;
  void add_parameter(const Tensor& p, size_t group);
  bool is_known(const Tensor& p, size_t group) const;
  static int64_t& counter(const Tensor& t) { return *static_cast<int64_t*>(t.data()); }
  double& rate() const { return *static_cast<double*>(rate_.data()); }

  Rule rule_;
  Options options_;
  std::vector<ParamGroup> groups_;
  std::vector<Tensor> params_;
  std::vector<Slot> slots_;  ///< one per parameter
  Tensor applied_, rate_;
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
using Muon = OptimizerOf<kMuon>;

}  // namespace minim::optim
