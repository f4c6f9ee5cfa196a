// expect: minim::amp::Autocast::Autocast()
#include "minim/amp/autocast.h"

void train() {
#ifdef MISTAKE
  minim::amp::Autocast on;  // which 16 bits?
#else
  minim::amp::Autocast on(minim::DType::bf16);
#endif
}
