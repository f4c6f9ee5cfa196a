// expect: use of deleted function
#include "minim/amp/autocast.h"

void train() {
  minim::amp::Autocast on(minim::DType::bf16);
#ifdef MISTAKE
  minim::amp::Autocast twice = on;  // would close its region twice
#else
  minim::amp::Autocast twice(minim::DType::bf16);
#endif
}
