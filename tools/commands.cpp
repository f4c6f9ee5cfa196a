#include "minim/tools/commands.h"

#include <utility>

#include "minim/amp/precision.h"
#include "minim/core/error.h"
#include "minim/core/warn.h"

namespace minim {

Setting model_setting(std::string& value) {
  return {.name = "model",
          .section = "",
          .value = &value,
          .help = "a run's directory, a checkpoint, or a model.safetensors (required)",
          .also = {"out", "checkpoint", "resume"},
          .any_bytes = true};
}

Setting policy_setting(std::string& value) {
  return {.name = "policy",
          .section = "",
          .value = &value,
          .help = "which ops autocast runs in 16 bits (see minim ops)",
          .choices = {"torch", "lean"}};
}

Use policy_use(const std::string& precision) {
  return {"policy", amp::resolve_precision(precision, "auto").autocast,
          "autocast (--precision amp-bf16 or amp-fp16)"};
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

Setting strict_setting(bool& value) {
  return {
      .name = "strict",
      .section = "",
      .value = &value,
      .help = "refuse a run whose newest checkpoint is damaged, instead of taking the one before"};
}

models::LoadedModel load_model_to_use(const std::string& path, bool strict) {
  models::LoadedModel loaded = models::load_model(path);
  if (loaded.damage.empty()) return loaded;
  const auto step = loaded.metadata.find("step");
  if (strict) fail(loaded.damage, "; without --strict the one before it is taken");
  warn(loaded.damage, "; taken instead: ", loaded.file.string(), ", step ",
       step == loaded.metadata.end() ? "?" : step->second);
  return loaded;
}

}  // namespace minim
