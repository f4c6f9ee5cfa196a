// tools/commands.h -- the subcommands of `minim`, each in its own tools/cmd_<name>.cpp. They take
// the words after their name, return the exit status and throw Error for what a person can mend.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "minim/models/model_file.h"
#include "minim/tools/settings.h"

namespace minim {

constexpr std::string_view kVersion = "0.1.0";

// Settings that several commands have.
Setting model_setting(std::string& value);
Setting policy_setting(std::string& value);
Use policy_use(const std::string& precision);
Setting threads_setting(std::int64_t& value);
Setting json_setting(bool& value);
Setting strict_setting(bool& value);

/// The model of --model. Where a run's newest checkpoint is damaged and the one before is taken,
/// a warning on stderr says so. @throws Error as models::load_model, and then if `strict`.
models::LoadedModel load_model_to_use(const std::string& path, bool strict);

int cmd_train(Args args);
int cmd_sample(Args args);
int cmd_eval(Args args);
int cmd_data(Args args);
int cmd_ops(Args args);
int cmd_info(Args args);
int cmd_bench(Args args);
int cmd_quickstart(Args args);

}  // namespace minim
