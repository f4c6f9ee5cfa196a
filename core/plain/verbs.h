// core/plain/verbs.h -- the backend that teaches: the simplest loops that are right, one thread, no
// blocks, no instruction sets. Where a tuned backend has the same order of sums by contract it has
// the same bits.
#pragma once
#include <span>

#include "minim/core/step.h"

namespace minim::plain {

void update(std::span<const optim::Update> updates);

}  // namespace minim::plain
