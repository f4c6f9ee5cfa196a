// whether no element over axes is 0, as bool; so it is among no elements
#pragma once
#include "minim/ops/any.h"

namespace minim::op {

struct All : Finds<true> {};

}  // namespace minim::op
