// tools/signals.h -- Ctrl-C and SIGTERM ask for an orderly end; a second one ends the program at
// once.
#pragma once

namespace minim {

/// From here on the first SIGINT or SIGTERM only sets the flag that stop_requested() reads.
void catch_stop_signals();

bool stop_requested();

}  // namespace minim
