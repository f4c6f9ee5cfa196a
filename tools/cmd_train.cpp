#include <fmt/format.h>

#include <cmath>
#include <iostream>

#include "minim/tools/commands.h"
#include "minim/tools/run.h"
#include "minim/tools/terminal.h"

namespace minim {

int cmd_train(Args args) {
  std::optional<TrainPlan> plan = plan_training(args);
  if (!plan) return 0;
  const Summary s = run_training(*plan, std::cout);
  if (!s.finished || std::isfinite(s.val_loss)) return 0;
  std::cout << std::flush;
  std::cerr << "minim: error: the run ended with a validation loss of " << number(s.val_loss, "g")
            << (s.nonfinite_since
                    ? fmt::format("; the loss was not finite from step {} on", s.nonfinite_since)
                    : "")
            << ": take a lower --lr, a longer --warmup or --clip 1\n";
  return 1;
}

}  // namespace minim
