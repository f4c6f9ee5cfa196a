#include "minim/tools/commands.h"

namespace minim {

Setting model_setting(std::string& value) {
  return {.name = "model",
          .section = "",
          .value = &value,
          .help = "a run's directory, a checkpoint, or a model.safetensors (required)",
          .also = {"out", "checkpoint", "resume"}};
}

Setting policy_setting(std::string& value) {
  return {.name = "policy",
          .section = "",
          .value = &value,
          .help = "which ops autocast runs in 16 bits (see minim ops)",
          .choices = {"torch", "lean"}};
}

Setting threads_setting(std::int64_t& value) {
  return {.name = "threads",
          .section = "",
          .value = &value,
          .help = "CPU threads; 0: all. Never changes a result",
          .range = Range{.low = 0, .high = 4096}};
}

Setting json_setting(bool& value) {
  return {.name = "json", .section = "", .value = &value, .help = "the same, for programs"};
}

}  // namespace minim
