// the index of the largest value along an axis
#pragma once
#include "minim/ops/arg_extreme_struct.h"

namespace minim::op {

struct ArgMax : ArgExtreme<false> {};

}  // namespace minim::op
