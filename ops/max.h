// the largest value over axes
#pragma once
#include "minim/ops/extreme_struct.h"

namespace minim::op {

struct Max : Extreme<false> {};

}  // namespace minim::op
