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

void collect(const toml::table& table, const std::string& prefix, const std::string& file,
             Layer& found) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string source = fmt::format("{}:{}", file, node.source().begin.line);
    if (const toml::table* section = node.as_table()) {
      collect(*section, name + ".", file, found);
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

}  // namespace

Layer read_toml(std::span<const Setting> settings, std::string_view toml, const std::string& file) {
  Layer found;
  try {
    collect(toml::parse(toml), "", file, found);
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
    const bool is_text = std::holds_alternative<std::string*>(setting.value);
    out += fmt::format("{} = {}  # {}\n", setting.name,
                       is_text ? fmt::format("\"{}\"", escaped(text(setting))) : text(setting),
                       escaped(source_of(sources, setting.name)));
  }
  return out;
}

}  // namespace minim
