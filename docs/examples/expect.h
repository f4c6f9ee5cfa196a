// docs/examples/expect.h -- an example says what it shows and fails when it does not hold.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

inline void expect(const char* what, bool holds) {
  std::printf("%s %s\n", holds ? "ok  " : "FAIL", what);
  if (!holds) std::exit(1);
}

/// What f() throws says `part`; prints all of it.
template <class F>
void expect_error(const char* what, const std::string& part, F&& f) {
  std::string message;
  try {
    f();
  } catch (const std::exception& e) {
    message = e.what();
  }
  expect(what, message.find(part) != std::string::npos);
  std::printf("       %s\n", message.c_str());
}
