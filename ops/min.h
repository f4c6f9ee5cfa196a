// the smallest value over axes
#pragma once
#include "minim/ops/extreme_struct.h"

namespace minim::op {

struct Min : Extreme<true> {};

}  // namespace minim::op
