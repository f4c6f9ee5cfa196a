// optim/schedule.h -- learning rates as pure functions of the number of applied steps: a skipped
// step does not advance them, and a resumed run needs no state of theirs.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "minim/core/error.h"

namespace minim::optim {

enum class Decay : uint8_t { constant, linear, cosine };

struct Schedule {
  double lr = 1e-3, min_lr = 0;  ///< after the warmup, and at the end
  int64_t warmup = 0;            ///< steps in which the rate rises linearly to lr
  int64_t steps = 1;             ///< from here on the rate is min_lr (constant: lr)
  Decay decay = Decay::constant;

  /// The rate of the step that follows `applied` applied ones. Cosine: Loshchilov and Hutter,
  /// "SGDR" (2017).
  double at(int64_t applied) const {
    if (applied < warmup) return lr * double(applied + 1) / double(warmup + 1);
    if (decay == Decay::constant) return lr;
    double span = double(std::max<int64_t>(1, steps - warmup));
    double done = std::min(1.0, double(applied - warmup) / span);
    double left = decay == Decay::linear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
    return min_lr + left * (lr - min_lr);
  }
};

/// @throws Error for another name than constant, linear and cosine.
inline Decay decay_named(std::string_view name) {
  constexpr std::string_view names[] = {"constant", "linear", "cosine"};
  for (size_t d = 0; d < 3; ++d)
    if (name == names[d]) return Decay(d);
  fail("'", name, "' is no schedule; known: constant linear cosine");
}

}  // namespace minim::optim
