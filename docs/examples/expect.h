// docs/examples/expect.h -- an example says what it shows and fails when it does not hold.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>

inline void expect(const char* what, bool holds) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what);
  if (!holds) std::exit(1);
}
