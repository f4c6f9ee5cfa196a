// expect: no matching function for call to 'make_row<minim::op::Exp>(
#include "minim/ops/exp.h"
#include "minim/ops/row.h"

namespace minim {
#ifdef MISTAKE
constinit const OpRow row = make_row<op::Exp>("exp", Cast::fp32, Cast::fp32, 4);
#else
constinit const OpRow row = make_row<op::Exp>("exp", Cast::fp32, Cast::fp32, 4, "f16 overflows");
#endif
}  // namespace minim
