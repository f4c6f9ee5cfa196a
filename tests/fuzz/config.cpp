// A configuration that is accepted reads back as it was written, its paths whole.
#include "minim/tools/config.h"
#include "minim/tests/fuzz/fuzz.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz::expect_value_or_error([&] {
    TrainPlan plan;
    const auto settings = settings_of(plan.config);
    const Layer layer = read_toml(settings, fuzz::text_of(data, size), "config.toml");
    plan.sources = assign_all(settings, {{layer}});
    check_contradictions(plan);
    const std::string written = to_toml(plan);
    TrainConfig again;
    const auto same = settings_of(again);
    assign_all(same, {{read_toml(same, written, "config.toml")}});
    if (!(again == with_whole_paths(plan.config))) __builtin_trap();
  });
}
