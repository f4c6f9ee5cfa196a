// tools/signals.h -- Ctrl-C, SIGTERM and SIGHUP ask for an orderly end; a second one ends the
// program at once.
#pragma once

namespace minim {

/// From here on the first SIGINT, SIGTERM or SIGHUP (unless it is ignored, as under nohup)
/// only sets the flag that stop_requested() reads, and writing to a
/// closed pipe fails instead of ending the program.
void catch_stop_signals();

/// A write past `ulimit -f` fails, instead of ending the program.
void ignore_file_size_signal();

bool stop_requested();

}  // namespace minim
