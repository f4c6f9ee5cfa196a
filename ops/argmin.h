// the index of the smallest value along an axis
#pragma once
#include "minim/ops/arg_extreme_struct.h"

namespace minim::op {

struct ArgMin : ArgExtreme<true> {};

}  // namespace minim::op
