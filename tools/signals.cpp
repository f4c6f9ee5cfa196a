#include "minim/tools/signals.h"

#include <csignal>

namespace minim {
namespace {

volatile std::sig_atomic_t stop = 0;  // a signal handler can reach nothing but a global

extern "C" void request_stop(int) {
  stop = 1;
  std::signal(SIGINT, SIG_DFL);  // so that the next one ends the program
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  stop = 0;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;  // a save under way is not disturbed
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return stop != 0; }

}  // namespace minim
