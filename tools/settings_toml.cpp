// tools/settings_toml.cpp -- the TOML reader and writer of a table of settings. The only file that
// includes toml++, which is slow to compile.
#include <fmt/format.h>

#include <stdexcept>
// Some texts ("T@" as the time of a date) break what toml++ 3.3 asserts, which would end the
// program.
namespace {
constexpr void toml_expect(bool held, const char* what) {
  if (!held) throw std::domain_error(what);
}
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(expr) toml_expect(static_cast<bool>(expr), "toml++ expected " #expr)
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

bool is_setting(std::span<const Setting> settings, const std::string& name) {
  return std::ranges::any_of(settings, [&](const Setting& s) {
    return !s.section.empty() && name == fmt::format("{}.{}", s.section, s.name);
  });
}

bool is_section(std::span<const Setting> settings, const std::string& name) {
  return std::ranges::any_of(settings, [&](const Setting& s) { return name == s.section; });
}

void collect(std::span<const Setting> settings, const toml::table& table, const std::string& prefix,
             const std::string& file, Layer& found) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const std::string source = fmt::format("{}:{}", file, node.source().begin.line);
    if (const toml::table* section = node.as_table()) {
      if (is_setting(settings, name)) fail(name, " (", source, "): expected a value, not a table");
      if (section->empty() && !is_section(settings, name))
        fail("unknown section '", name, "' (", source, "); --help lists all there are");
      if (std::ranges::count(name, '.') > 1)  // "section.key" is the deepest there is
        fail("'", name, "' (", source, ") is a table: a setting is KEY or SECTION.KEY");
      collect(settings, *section, name + ".", file, found);
    } else if (node.is_array() && is_list(settings, name)) {
      if (node.as_array()->empty())
        fail(name, " (", source, ") is an empty list: give one text or more, or leave it out");
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

/// Behind the string that begins at `at`, or the end.
size_t end_of_string(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const std::string three(3, quote);
  const bool lines = toml.substr(at).starts_with(three);
  const std::string_view end = std::string_view(three).substr(0, lines ? 3 : 1);
  for (at += end.size(); at < toml.size(); ++at) {
    if (toml.substr(at).starts_with(end)) return at + end.size();
    if (toml[at] == '\n' && !lines) return at;
    if (toml[at] == '\\' && quote == '"' && at + 1 < toml.size()) ++at;
  }
  return at;
}

constexpr size_t kMostDots = 200;

/// TOML is ASCII but for strings and comments. toml++ 3.3 asks of other characters whether they are
/// white space, and the answer is undefined behaviour for U+00A1 to U+0499, U+2D4F and others.
void refuse_foreign_characters(std::string_view toml, const std::string& file) {
  size_t at = toml.starts_with("\xEF\xBB\xBF") ? 3 : 0, dots = 0;
  char before = '\n';  // the last character that is not blank: a string begins behind some only
  while (at < toml.size()) {
    const bool begins = std::string_view("\n=,[.{").find(before) != std::string_view::npos;
    if (toml[at] != ' ' && toml[at] != '\t' && toml[at] != '\r') before = toml[at];
    dots = toml[at] == '\n' ? 0 : dots + (toml[at] == '.');
    if (dots > kMostDots)  // each makes a table in the one before, and toml++ recurses
      fail(file, ":", 1 + std::count(toml.begin(), toml.begin() + ptrdiff_t(at), '\n'),
           ": more than ", kMostDots, " dots in a line: a setting is KEY or SECTION.KEY");
    if (toml[at] == '#') {
      at = std::min(toml.find('\n', at), toml.size());
    } else if (begins && (toml[at] == '"' || toml[at] == '\'')) {
      at = end_of_string(toml, at);
    } else if (static_cast<signed char>(toml[at++]) < 0) {
      fail(file, ":", 1 + std::count(toml.begin(), toml.begin() + ptrdiff_t(at), '\n'),
           ": this is not TOML: a character that is not ASCII stands outside quotes and comments");
    }
  }
}

}  // namespace

Layer read_toml(std::span<const Setting> settings, std::string_view toml, const std::string& file) {
  Layer found;
  refuse_foreign_characters(toml, file);
  try {
    collect(settings, toml::parse(toml), "", file, found);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    std::string why(error.description());
    if (why.starts_with("Error while ")) why.erase(0, std::string_view("Error while ").size());
    fail(file, ":", at.line, ":", at.column, ": this is not TOML: ", why);
  } catch (const std::domain_error& error) {
    fail(file, ": this is not TOML: ", error.what());
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
    out += fmt::format("{} = {}", setting.name, toml_value(setting));
    if (!sources.empty()) out += "  # " + escaped(source_of(sources, setting.name));
    out += '\n';
  }
  return out;
}

}  // namespace minim
