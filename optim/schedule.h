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

enum class Decay : uint8_t { constant, linear, cosine, wsd };

struct Schedule {
  double lr = 1e-3, min_lr = 0;  ///< after the warmup, and at the end
  int64_t warmup = 0;            ///< steps in which the rate rises linearly to lr
  /// From here on the rate is min_lr, also where the warmup is longer; constant has no end.
  int64_t steps = 1;
  Decay decay = Decay::constant;
  double decay_share = 0.2;  ///< wsd: of all steps, the last ones, in which the rate falls

  /// The rate of the step that follows `applied` applied ones. Cosine: Loshchilov and Hutter,
  /// "SGDR" (2017). wsd, warmup-stable-decay: lr, then a linear fall (Hu et al., "MiniCPM", 2024).
  double at(int64_t applied) const {
    if (decay != Decay::constant && applied >= steps) return min_lr;
    if (applied < warmup) return lr * double(applied + 1) / double(warmup + 1);
    if (decay == Decay::constant) return lr;
    double end = double(steps), begin = double(warmup);
    if (decay == Decay::wsd) begin = std::max(begin, end - decay_share * end);
    double done = std::clamp((double(applied) - begin) / std::max(1.0, end - begin), 0.0, 1.0);
    double left = decay == Decay::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
    return min_lr + left * (lr - min_lr);
  }
};

/// @throws Error for another name than constant, linear, cosine and wsd.
inline Decay decay_named(std::string_view name) {
  constexpr std::string_view names[] = {"constant", "linear", "cosine", "wsd"};
  for (size_t d = 0; d < 4; ++d)
    if (name == names[d]) return Decay(d);
  fail("'", name, "' is no schedule; known: constant linear cosine wsd");
}

}  // namespace minim::optim
