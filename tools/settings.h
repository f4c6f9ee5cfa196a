// tools/settings.h -- a command's settings as one table. The flags, the help, the TOML reader and
// writer, the range checks and the suggestions for misspelt names all come from that table, so none
// of them can fall behind.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace minim {

using Args = std::span<const std::string>;  // the words after the command's name

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   // low itself is not allowed
  bool high_open = false;  // high itself is not allowed
};

/// What another value means to a run that is resumed.
enum class OnResume : std::uint8_t {
  call,     // of one call; nothing of it is remembered
  kept,     // refused
  content,  // taken if it comes to the same: files that lie elsewhere
  applied,  // holds from the next step on
  free,     // taken; no number of the run depends on it
};

/// One setting, bound to the variable that it sets; that variable's value at the start is the
/// default.
struct Setting {
  std::string_view name;  // the flag without its dashes, and the key in TOML
  std::string_view
      section;  // the section in TOML; "" for what can only be given on the command line
  std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*> value;
  std::string_view help;
  std::optional<Range> range = {};  // numbers: what is allowed
  std::vector<std::string_view> choices =
      {};  // text: what is allowed, besides a number in the range if there is one
  std::string_view suffix = {};    // text: or a file whose name ends so
  bool positional = false;         // a list: its words need no flag
  std::string_view negative = {};  // bool: the flag that turns it off
  std::vector<std::string_view> also =
      {};  // names that people know it by, understood only to suggest the right one
  OnResume on_resume = OnResume::call;
  bool any_bytes = false;  // text: need not be UTF-8, as no TOML or JSON gets it
};

/// The setting's present value: numbers in the fewest digits that read back to the same bits.
std::string text(const Setting& setting);

/// One value as somebody gave it, and where: "--steps" or "config.toml:12".
struct Assignment {
  std::string name;  // "steps", or "train.steps" in TOML
  std::string text;
  std::string source;
};

using Layer = std::vector<Assignment>;  // all that one file, or the command line, gives

using Sources = std::map<std::string, std::string,
                         std::less<>>;  // a setting's name -> where its value came from

/// Where a value came from: "--steps", "config.toml:12" or "default".
std::string source_of(const Sources& sources, std::string_view name);

/// The value of the last assignment to `name`, or "".
std::string given(const Layer& assignments, std::string_view name);

/// Sets every value, later layers over earlier ones, and says where each came from. A list takes
/// all that one layer gives. Throws Error for a value of the wrong kind or out of range, another
/// setting given twice in one layer, and (last, so that the message can tell what it clashes with)
/// an unknown name.
Sources assign_all(std::span<const Setting> settings, std::span<const Layer> layers);

/// Where a flag has an effect, in words that say what it is for.
struct Use {
  std::string_view name;
  bool used;
  std::string_view needs;
};
/// Throws Error for a flag that was given and has no effect beside the other settings: that is a
/// mistake of its own.
void refuse_unused(const Sources& sources, std::initializer_list<Use> uses);

/// The flags in `args`. nullopt: --help was asked for and has been printed. Throws Error for a flag
/// without its value and for a word that belongs to no flag; unknown flags are passed on to
/// assign_all().
std::optional<Layer> read_flags(std::span<const Setting> settings, Args args,
                                const std::string& command, const std::string& description);

/// The keys of a TOML text, in sections or dotted ("model.layers") or bare ("layers"). Throws Error
/// for broken syntax.
Layer read_toml(std::span<const Setting> settings, std::string_view toml, const std::string& file);

/// The settings as TOML that reads back to the same values, each with its source as a comment where
/// there are sources.
std::string write_toml(std::span<const Setting> settings, const Sources& sources);

}  // namespace minim
