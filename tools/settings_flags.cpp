// tools/settings_flags.cpp -- the flags and the help of a table of settings, through CLI11.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "minim/core/error.h"
#include "minim/tools/settings.h"

namespace minim {
namespace {

bool is_flag(const Setting& setting) { return std::holds_alternative<bool*>(setting.value); }
bool is_list(const Setting& setting) {
  return std::holds_alternative<std::vector<std::string>*>(setting.value);
}

/// What stands for the value in the help.
std::string value_name(const Setting& setting) {
  if (std::holds_alternative<std::int64_t*>(setting.value)) return "N";
  if (std::holds_alternative<double*>(setting.value)) return "X";
  if (is_list(setting)) return "FILE";
  return setting.choices.empty() ? "TEXT" : "NAME";
}

/// What --resume does to it, where that is not simply to take it.
const char* on_resume(OnResume kind) {
  return kind == OnResume::kept      ? "; --resume keeps it"
         : kind == OnResume::content ? "; --resume: what comes to the same"
                                     : "";
}

std::string description(const Setting& setting) {
  std::string words(setting.help);
  if (!setting.choices.empty())
    words += fmt::format("\n{}{}{}", fmt::join(setting.choices, " | "), setting.range ? " | N" : "",
                         setting.suffix.empty() ? "" : fmt::format(" | FILE{}", setting.suffix));
  const std::string value = text(setting), resumed = on_resume(setting.on_resume);
  return value.empty() ? words : fmt::format("{} (default {}{})", words, value, resumed);
}

CLI::Option* add(CLI::App& app, const Setting& setting) {
  std::string names = fmt::format("{}{}", setting.positional ? "" : "--", setting.name);
  if (!setting.negative.empty()) names += fmt::format(",!--{}", setting.negative);
  const auto accept = [](const CLI::results_t&) { return true; };  // read_flags() takes the words
  CLI::Option* option = is_flag(setting) ? app.add_flag(names) : app.add_option(names, accept);
  option->description(description(setting));
  if (!is_flag(setting)) option->type_name(value_name(setting));
  if (is_list(setting)) option->expected(CLI::detail::expected_max_vector_size);
  if (!setting.section.empty()) option->group(fmt::format("[{}]", setting.section));
  return option->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);  // assign_all() refuses repeats
}

std::string flag_of(const Setting& setting, const std::string& text) {
  const bool off = !setting.negative.empty() && text == "false";
  return fmt::format("--{}", off ? setting.negative : setting.name);
}

/// "--out --steps 5" would make --steps the output directory.
void refuse_swallowed_flag(std::span<const Setting> settings, const std::string& flag,
                           const std::string& text) {
  for (const Setting& setting : settings)
    if (text == flag_of(setting, "") || text == flag_of(setting, "false"))
      fail(flag, " needs a value, but the next word is the flag ", text);
}

/// What CLI11 did not know: flags go on to assign_all(), which knows what they were meant to be.
void add_unknown(const std::vector<std::string>& words, Layer& found) {
  bool any_flag = false;
  for (const std::string& word : words) {
    if (!word.starts_with('-')) continue;
    const std::string flag = word.substr(0, word.find('='));
    found.push_back({flag.substr(std::min(flag.find_first_not_of('-'), flag.size())), "", flag});
    any_flag = true;
  }
  if (!words.empty() && !any_flag)
    fail("unexpected word '", words.front(), "': every setting is a flag, such as --steps 100");
}

}  // namespace

std::optional<Layer> read_flags(std::span<const Setting> settings, Args args,
                                const std::string& command, const std::string& description) {
  CLI::App app(description, "minim " + command);
  app.allow_extras();
  std::vector<CLI::Option*> options;
  for (const Setting& setting : settings) options.push_back(add(app, setting));
  try {
    app.parse(
        std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 takes the last word first
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    fail(error.what(), "; minim ", command, " --help explains every flag");
  }
  Layer found;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    for (const std::string& text : options[i]->results()) {
      const std::string flag = flag_of(settings[i], text);
      refuse_swallowed_flag(settings, flag, text);
      found.push_back({std::string(settings[i].name), text, flag});
    }
  }
  add_unknown(app.remaining(), found);
  return found;
}

}  // namespace minim
