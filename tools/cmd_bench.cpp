// minim bench: how fast this machine is, and how much of that minim gets.
#include <unistd.h>

#include <iostream>
#include <map>
#include <optional>
#include <regex>

#include "minim/core/cpu/isa.h"
#include "minim/core/parallel.h"
#include "minim/models/json.h"
#include "minim/models/read_file.h"
#include "minim/models/reason.h"
#include "minim/models/sync_file.h"
#include "minim/tools/bench_tables.h"
#include "minim/tools/commands.h"
#include "minim/tools/terminal.h"

namespace minim {
namespace {

using bench::Ceilings;
using bench::Measured;
using bench::Set;
using nlohmann::ordered_json;

struct Options {
  std::string group = "all", filter, json, compare;
  double seconds = 0.05;
  int64_t threads = 0;
  bool markdown = false;
};

std::vector<Setting> settings_of(Options& o) {
  Setting threads = threads_setting(o.threads);
  threads.help = "the most CPU threads; 0: all";
  return {
      {.name = "group",
       .section = "",
       .value = &o.group,
       .help = "what to measure, after the machine's ceilings",
       .choices = {"all", "ceilings", "rows", "gemm", "attention", "step", "overhead"}},
      {.name = "filter",
       .section = "",
       .value = &o.filter,
       .help = "only the cases in whose name this regular expression is found",
       .also = {"benchmark_filter", "regex"}},
      {.name = "seconds",
       .section = "",
       .value = &o.seconds,
       .help = "least time for each case",
       .range = Range{.low = 0, .high = 60, .low_open = true},
       .also = {"benchmark_min_time", "min-time"}},
      threads,
      {.name = "json",
       .section = "",
       .value = &o.json,
       .help = "FILE: write the numbers there, as JSON",
       .any_bytes = true},
      {.name = "compare",
       .section = "",
       .value = &o.compare,
       .help = "a file that --json wrote: show what became faster or slower since",
       .any_bytes = true},
      {.name = "markdown", .section = "", .value = &o.markdown, .help = "tables for a page"},
  };
}

struct Group {
  std::string_view name;
  std::vector<Set> (*sets)(int threads);
};
constexpr Group kGroups[] = {{"rows", bench::row_sets},
                             {"gemm", bench::gemm_sets},
                             {"attention", bench::attention_sets},
                             {"step", bench::step_sets},
                             {"overhead", bench::overhead_sets}};

/// Nested expressions take the stack, hence the bound; and backtracking takes time without end for
/// (.*)*(.*)*z, hence the automaton, where the library has it.
std::regex pattern_of(const std::string& filter) try {
  constexpr size_t kMost = 500;
  if (filter.size() > kMost)
    fail("--filter has ", filter.size(), " characters, more than ", kMost,
         ": give a part of a name, such as rows/relu, or step.*bf16");
#ifdef __GLIBCXX__
  return std::regex(filter, std::regex::extended | std::regex_constants::__polynomial);
#else
  return std::regex(filter, std::regex::extended);
#endif
} catch (const std::regex_error&) {
  fail("--filter '", filter,
       "' is no regular expression; try a part of a name, such as rows/relu, or step.*bf16");
}

/// The cases that are asked for. @throws Error where there are none.
std::vector<Set> chosen_sets(const Options& o, int threads) {
  const std::regex pattern = pattern_of(o.filter);
  std::vector<Set> chosen;
  for (const Group& group : kGroups) {
    if (o.group != "all" && o.group != group.name) continue;
    for (Set& set : group.sets(threads)) {
      std::erase_if(set, [&](const auto& c) { return !std::regex_search(c.name, pattern); });
      if (!set.empty()) chosen.push_back(std::move(set));
    }
  }
  if (chosen.empty() && o.group != "ceilings")
    fail("no case of --group ", o.group, " has '", o.filter,
         "' in its name; names look like rows/relu/backward/bf16, gemm/768,128,384/t1/f32, "
         "attention/8,6,256,64/forward/f16, step/small/t2/amp-bf16-lean and overhead/scalar add");
  return chosen;
}

/// An earlier --json, on as many threads: seconds by name.
std::map<std::string, double> read_earlier(const std::string& file, int threads) {
  std::map<std::string, double> seconds;
  int64_t then = 0;
  const std::string bytes = models::read_file(file, "--compare");
  try {
    const nlohmann::json j = models::parse_json(bytes);
    then = j.at("threads");
    for (const auto& c : j.at("cases")) seconds[c.at("name")] = c.at("seconds");
  } catch (const std::exception& e) {
    fail("--compare '", file, "' is no file of minim bench --json: ", models::reason(e));
  }
  if (then != threads)
    fail("--compare '", file, "' was measured with ", then, " threads, not ", threads,
         ": give --threads ", then);
  return seconds;
}

void write_json(const Options& o, int threads, const std::vector<Measured>& results,
                const Ceilings& ceilings) {
  ordered_json j = {{"minim", kVersion},
                    {"isa", isa().name},
                    {"threads", threads},
                    {"seconds", o.seconds},
                    {"cases", ordered_json::array()}};
  for (const Measured& r : results) j["cases"].push_back(record_of(r, ceilings));
  models::write_file_atomically(o.json, j.dump(2) + '\n');
}

/// One line that says what runs, where somebody looks at it.
void show(std::string_view what) {
  if (is_terminal(STDERR_FILENO)) std::cerr << "\r\x1b[K" << what << std::flush;
}

std::string_view group_of(const Set& set) {
  const std::string_view name = set.front().name;
  return name.substr(0, name.find('/'));
}

}  // namespace

int cmd_bench(Args args) {
  Options o;
  const std::vector<Setting> settings = settings_of(o);
  const auto flags = read_flags(settings, args, "bench",
                                "Measures this machine's ceilings, then minim: every op, matrix "
                                "products, attention, training steps and the cost of a call.");
  if (!flags) return 0;
  assign_all(settings, std::span(&*flags, 1));
  if (!bench::available())
    fail(
        "this minim was built without Google Benchmark: install libbenchmark-dev (tools/setup.sh "
        "does), and build again from a fresh configuration: cmake --fresh --preset release");
  set_threads(int(o.threads));
  const int all_threads = threads();
  std::vector<Set> sets = chosen_sets(o, all_threads);
  const auto earlier =
      o.compare.empty() ? std::map<std::string, double>() : read_earlier(o.compare, all_threads);
  if (!o.json.empty()) models::write_file_atomically(o.json, "{}\n");  // now, not after minutes
  std::vector<Set> first = bench::ceiling_sets(all_threads);
  sets.insert(sets.begin(), first.begin(), first.end());
  Ceilings ceilings;
  std::vector<Measured> all, table;
  for (size_t i = 0; i < sets.size(); ++i) {
    show(sets[i].front().name);
    for (Measured& r : bench::measure(sets[i], o.seconds)) {
      if (i < first.size()) ceilings.add(r);
      table.push_back(r);
    }
    if (i + 1 < sets.size() && group_of(sets[i]) == group_of(sets[i + 1])) continue;
    show("");
    bench::print(rates(table, ceilings), o.markdown);
    bench::print(bytes_by_kind(table), o.markdown);
    all.insert(all.end(), table.begin(), table.end());
    table.clear();
  }
  if (!o.compare.empty()) bench::print(comparison(all, earlier), o.markdown);
  if (!o.json.empty()) write_json(o, all_threads, all, ceilings);
  return 0;
}

}  // namespace minim
