#include "minim/tools/signals.h"

#include <csignal>

namespace minim {
namespace {

volatile std::sig_atomic_t stop = 0;  // a signal handler can reach nothing but a global

constexpr int kStops[] = {SIGINT, SIGTERM, SIGHUP};

extern "C" void request_stop(int) {
  stop = 1;
  for (const int signal : kStops) std::signal(signal, SIG_DFL);  // the next one ends the program
}

}  // namespace

void catch_stop_signals() {
  stop = 0;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;  // a save under way is not disturbed
  sigemptyset(&action.sa_mask);
  for (const int signal : kStops) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away shows as a failed write
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

bool stop_requested() { return stop != 0; }

}  // namespace minim
