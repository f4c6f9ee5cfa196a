// tools/settings_toml.cpp -- the TOML reader and writer of a table of settings. The only file that
// includes toml++, which is slow to compile.
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <sstream>

#include "minim/core/error.h"
#include "minim/tools/settings.h"

namespace minim {
namespace {

std::string value_text(const toml::node& node, const std::string& name, const std::string& source) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  fail(name, " (", source, "): expected one text, number, true or false");
}

bool is_list(std::span<const Setting> settings, const std::string& name) {
  return std::ranges::any_of(settings, [&](const Setting& s) {
    return std::holds_alternative<std::vector<std::string>*>(s.value) &&
           (name == s.name || name == fmt::format("{}.{}", s.section, s.name));
  });
}

void collect(std::span<const Setting> settings, const toml::table& table, const std::string& prefix,
             const std::string& file, Layer& found) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string source = fmt::format("{}:{}", file, node.source().begin.line);
    if (const toml::table* section = node.as_table()) {
      collect(settings, *section, name + ".", file, found);
    } else if (node.is_array() && is_list(settings, name)) {
      for (const toml::node& each : *node.as_array())
        found.push_back({name, value_text(each, name, source), source});
    } else {
      found.push_back({name, value_text(node, name, source), source});
    }
  }
}

void refuse_command_line_only(std::span<const Setting> settings, const Assignment& given) {
  for (const Setting& setting : settings)
    if (setting.section.empty() && given.name == setting.name)
      fail(given.name, " (", given.source, ") can only be given on the command line: --",
           given.name);
}

/// As it stands inside a TOML basic string.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", escaped(text)); }

std::string toml_value(const Setting& setting) {
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&setting.value)) {
    std::vector<std::string> words;
    for (const std::string& word : **list) words.push_back(quoted(word));
    return words.size() == 1 ? words[0] : fmt::format("[{}]", fmt::join(words, ", "));
  }
  return std::holds_alternative<std::string*>(setting.value) ? quoted(text(setting))
                                                             : text(setting);
}

}  // namespace

Layer read_toml(std::span<const Setting> settings, std::string_view toml, const std::string& file) {
  Layer found;
  try {
    collect(settings, toml::parse(toml), "", file, found);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    std::string why(error.description());
    if (why.starts_with("Error while ")) why.erase(0, std::string_view("Error while ").size());
    fail(file, ":", at.line, ":", at.column, ": this is not TOML: ", why);
  }
  for (const Assignment& given : found) refuse_command_line_only(settings, given);
  return found;
}

std::string write_toml(std::span<const Setting> settings, const Sources& sources) {
  std::string out, section;
  for (const Setting& setting : settings) {
    if (setting.section.empty()) continue;
    if (setting.section != section) {
      section = setting.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    out += fmt::format("{} = {}  # {}\n", setting.name, toml_value(setting),
                       escaped(source_of(sources, setting.name)));
  }
  return out;
}

}  // namespace minim
