#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

#include "minim/tools/signals.h"

using namespace minim;

TEST_CASE("the first signal asks for an end, the second one brings it") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      catch_stop_signals();
      if (stop_requested()) _exit(3);
      raise(signal);
      if (!stop_requested()) _exit(4);
      raise(signal);
      _exit(5);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
  }
}
