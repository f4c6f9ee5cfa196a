// optim/ema.h -- an exponential moving average of the weights, for evaluation (Polyak and Juditsky,
// "Acceleration of stochastic approximation by averaging", 1992).
#pragma once
#include "minim/optim/optimizer.h"

namespace minim::optim {

/// Averages an optimizer's parameters in fp32 (f64 for f64), from its masters where there are any.
/// The optimizer outlives it. It reads weights and, but for a Swap, writes none: what somebody else
/// writes in them enters the average as any other step does. After loading other weights, make
/// another Ema.
class Ema {
 public:
  /// Starts at the present weights. @throws Error unless decay is in [0, 1).
  Ema(const Optimizer& optimizer, double decay);

  /// Call after each step that was applied. average <- d average + (1 - d) weights, where d =
  /// min(decay, (1 + n) / (10 + n)) at update n = 0, 1, ...: early weights are soon forgotten.
  /// @throws Error while averages stand in for the weights.
  void update();

  /// While it lives, the parameters are the averages, rounded to their dtype, and every optimizer
  /// that has one of them refuses to step; masters stay as they are. Its end puts the weights back,
  /// bit for bit, and warns where somebody has written a parameter in between, as that is lost.
  /// @throws Error where averages stand in for a parameter already; nothing is changed then, nor
  /// where memory runs out.
  class Swap {
   public:
    explicit Swap(const Ema& ema);
    ~Swap();
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    std::vector<Tensor> params_, weights_;
    std::vector<uint64_t> versions_;  ///< of the averages
  };
  Swap swap() const { return Swap(*this); }

  /// Each average under its parameter's name, rounded to its dtype; shared with this where that is
  /// the average's own.
  std::vector<NamedState> averages() const;

  /// "updates", a 0-dim i64, and "<parameter>.ema" for each, shared with this.
  std::vector<NamedState> state() const;
  /// @throws Error as copy_state.
  void load_state(const std::vector<NamedState>& saved) { copy_state("Ema", saved, state()); }

 private:
  Tensor weights(size_t i) const;

  const Optimizer& optimizer_;
  double decay_;
  std::vector<Tensor> params_, averages_;
  Tensor updates_;
};

}  // namespace minim::optim
