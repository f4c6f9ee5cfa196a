#include "minim/tools/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>

#include "minim/core/error.h"
#include "minim/models/utf8.h"
#include "minim/tools/nearest.h"

namespace minim {
namespace {

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <>
std::optional<bool> parse<bool>(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

bool contains(const Range& range, double x) {  // false for nan
  return (range.low_open ? x > range.low : x >= range.low) &&
         (range.high_open ? x < range.high : x <= range.high);
}

constexpr double kBeyondMention = 1e15;  // mostly limits of the number format, not of the setting

/// The bounds in words. One that is no more than the format's limit is told to who went past it.
std::string describe(const Range& range, const std::string& text) {
  std::string low, high;
  if (std::isfinite(range.low))
    low = fmt::format(" {} {}", range.low_open ? "above" : "of at least", range.low);
  if (range.high < kBeyondMention || std::strtod(text.c_str(), nullptr) > range.high)
    high = fmt::format(" {} {:.{}g}", range.high_open ? "below" : "at most", range.high,
                       std::numeric_limits<double>::digits10 + 1);
  return low + (low.empty() || high.empty() ? "" : " and") + high;
}

std::string expectation(const Setting& setting, const std::string& given) {
  const std::string range = setting.range ? describe(*setting.range, given) : "";
  if (std::holds_alternative<bool*>(setting.value)) return "true or false";
  if (std::holds_alternative<std::int64_t*>(setting.value)) return "a whole number" + range;
  if (std::holds_alternative<double*>(setting.value)) return "a number" + range;
  if (setting.choices.empty()) return "a text that is not empty";
  const std::string file =
      setting.suffix.empty() ? "" : fmt::format(", or a file named *{}", setting.suffix);
  return fmt::format("one of {}{}{}", fmt::join(setting.choices, ", "), file,
                     setting.range ? ", or a number" + range : "");
}

/// Each returns whether `text` is allowed, and stores it if so.
template <class Value>
bool store(const Setting& setting, std::string_view text, Value& value) {
  const std::optional<Value> parsed = parse<Value>(text);
  if (!parsed || (setting.range && !contains(*setting.range, static_cast<double>(*parsed))))
    return false;
  value = *parsed;
  return true;
}

bool store(const Setting& setting, std::string_view text, std::string& value) {
  const std::optional<double> number = setting.range ? parse<double>(text) : std::nullopt;
  const bool allowed = setting.choices.empty()
                           ? !text.empty()
                           : std::ranges::count(setting.choices, text) > 0 ||
                                 (number && contains(*setting.range, *number)) ||
                                 (!setting.suffix.empty() && text.ends_with(setting.suffix));
  if (allowed) value = text;
  return allowed;
}

bool store(const Setting&, std::string_view text, std::vector<std::string>& values) {
  values.emplace_back(text);
  return !text.empty();
}

/// Bytes that are not ASCII as \xfe.
std::string in_hex(std::string_view text) {
  std::string shown;
  for (const char c : text)
    shown +=
        static_cast<signed char>(c) < 0 ? fmt::format("\\x{:02x}", uint8_t(c)) : std::string(1, c);
  return shown;
}

void assign(const Setting& setting, const Assignment& given) {
  if (given.text.find('\0') != std::string::npos)
    fail(setting.name, " (", given.source, ") holds a NUL byte, which nothing here can have");
  if (!setting.any_bytes && !models::is_utf8(given.text))
    fail(setting.name, " (", given.source, ") is '", in_hex(given.text),
         "', which is not UTF-8, as TOML and JSON are, where it would be recorded: rename the "
         "file, ",
         "or give a link to it that has another name");
  const auto stored = [&](auto* value) { return store(setting, given.text, *value); };
  if (std::visit(stored, setting.value)) return;
  const std::string_view meant = nearest(given.text, setting.choices);
  fail(setting.name, " = ", given.text.empty() ? "\"\"" : given.text, " (", given.source,
       "): expected ", expectation(setting, given.text),
       meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

/// People write weight_decay as often as weight-decay.
std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

const Setting* find(std::span<const Setting> settings, const std::string& name) {
  const auto is_it = [&](const Setting& s) {
    return name == s.name || name == fmt::format("{}.{}", s.section, s.name);
  };
  const auto found = std::ranges::find_if(settings, is_it);
  return found == settings.end() ? nullptr : &*found;
}

/// Every word that stands for a setting, its own name first.
std::vector<std::string_view> words_of(const Setting& setting) {
  std::vector<std::string_view> words = {setting.name};
  if (!setting.negative.empty()) words.push_back(setting.negative);
  words.insert(words.end(), setting.also.begin(), setting.also.end());
  return words;
}

const Setting* meant_by(std::span<const Setting> settings, std::string_view word,
                        std::string_view& as) {
  std::vector<std::string_view> words;
  for (const Setting& setting : settings)
    std::ranges::copy(words_of(setting), std::back_inserter(words));
  as = nearest(word, words);
  const auto owns = [&](const Setting& s) { return std::ranges::count(words_of(s), as) > 0; };
  const auto owner = std::ranges::find_if(settings, owns);
  return owner == settings.end() ? nullptr : &*owner;
}

[[noreturn]] void fail_unknown(std::span<const Setting> settings, const Assignment& given,
                               const Sources& sources) {
  const bool flag = given.source.starts_with('-');
  std::string message = flag ? "unknown flag " + given.source
                             : fmt::format("unknown key '{}' ({})", given.name, given.source);
  std::string_view as;
  const std::string name = dashed(given.name);
  const Setting* meant = meant_by(settings, name.substr(name.rfind('.') + 1), as);
  if (meant) {
    if (as != meant->negative) as = meant->name;
    message += flag || meant->section.empty()
                   ? fmt::format("; did you mean --{}?", as)
                   : fmt::format("; did you mean '{}' in [{}]?", meant->name, meant->section);
    if (sources.contains(meant->name))
      message += fmt::format(" (that one is set to {} by {})", text(*meant),
                             source_of(sources, meant->name));
  }
  fail(message, meant ? "" : "; --help lists all there are");
}

}  // namespace

std::string text(const Setting& setting) {
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&setting.value))
    return fmt::format("{}", fmt::join(**list, " "));
  return std::visit([](const auto* value) { return fmt::format("{}", *value); }, setting.value);
}

std::string source_of(const Sources& sources, std::string_view name) {
  const auto found = sources.find(name);
  return found == sources.end() ? "default" : found->second;
}

void refuse_unused(const Sources& sources, std::initializer_list<Use> uses) {
  for (const Use& use : uses)
    if (!use.used && source_of(sources, use.name).starts_with("--"))
      fail("--", use.name, " has no effect here: it is for ", use.needs, "; leave it out");
}

std::string given(const Layer& assignments, std::string_view name) {
  std::string value;
  for (const Assignment& a : assignments)
    if (a.name == name) value = a.text;
  return value;
}

Sources assign_all(std::span<const Setting> settings, std::span<const Layer> layers) {
  Sources sources;
  const Assignment* unknown = nullptr;
  for (const Layer& layer : layers) {
    std::map<const Setting*, const Assignment*> seen;
    for (const Assignment& given : layer) {
      const Setting* setting = find(settings, dashed(given.name));
      if (!setting) {
        if (!unknown) unknown = &given;
        continue;
      }
      const auto [first, fresh] = seen.emplace(setting, &given);
      auto* const* list = std::get_if<std::vector<std::string>*>(&setting->value);
      if (list && fresh) (*list)->clear();
      if (!list && !fresh)
        fail(setting->name, " is given twice: ", first->second->text, " (", first->second->source,
             ") and ", given.text, " (", given.source, "); keep one");
      assign(*setting, given);
      sources[std::string(setting->name)] = given.source;
    }
  }
  if (unknown) fail_unknown(settings, *unknown, sources);
  return sources;
}

}  // namespace minim
