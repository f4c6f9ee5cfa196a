#include <iostream>

#include "minim/tools/commands.h"
#include "minim/tools/run.h"

namespace minim {

int cmd_train(Args args) {
  std::optional<TrainPlan> plan = plan_training(args);
  if (plan) run_training(*plan, std::cout);
  return 0;
}

}  // namespace minim
