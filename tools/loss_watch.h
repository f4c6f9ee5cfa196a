// tools/loss_watch.h -- tells a loss that leaps, or is no number, once.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace minim {

class LossWatch {
 public:
  /// Whether this loss begins a stretch of losses that are not finite, or over three times the
  /// recent ones and a tenth of a nat; those of a stretch do not count as recent.
  bool flags(double loss) {
    const bool far = seen_ >= kRecent && loss > 3 * recent_ + 0.1,
               odd = far || !std::isfinite(loss);
    if (!odd) recent_ += (loss - recent_) / double(std::min(++seen_, kRecent));
    const bool first = odd && !in_stretch_;
    in_stretch_ = odd;
    return first;
  }
  double recent() const { return recent_; }  ///< their average

 private:
  static constexpr int64_t kRecent = 20;  // steps
  int64_t seen_ = 0;
  double recent_ = 0;
  bool in_stretch_ = false;
};

}  // namespace minim
