// minim ops: the table of operations, as people, programs and docs/ops.md read it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "minim/ops/op.h"
#include "minim/tools/commands.h"
#include "minim/tools/nearest.h"
#include "minim/tools/op_attrs.h"
#include "minim/tools/terminal.h"
#include "minim/tools/torch_casts.h"

namespace minim {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string op, policy = "both";
  bool json = false, markdown = false, diff_torch = false;
};

std::vector<Setting> settings_of(Options& o) {
  return {
      {.name = "op", .section = "", .value = &o.op, .help = "show this row in full"},
      {.name = "policy",
       .section = "",
       .value = &o.policy,
       .help = "whose casts to show",
       .choices = {"both", "torch", "lean"}},
      {.name = "json", .section = "", .value = &o.json, .help = "everything, for programs"},
      {.name = "markdown", .section = "", .value = &o.markdown, .help = "the page docs/ops.md"},
      {.name = "diff-torch",
       .section = "",
       .value = &o.diff_torch,
       .help = "where PyTorch's lists for CUDA differ, and why"},
  };
}

struct Meaning {
  Cast cast;
  const char* text;
};
constexpr Meaning kCasts[] = {
    {Cast::lower, "floating operands are rounded to 16 bits, and so is the result"},
    {Cast::fp32, "operands are widened to f32, and the result is f32"},
    {Cast::promote, "the widest operand wins, starting at the region's 16-bit dtype"},
    {Cast::keep, "as without autocast: native promotion"},
    {Cast::banned, "refused under autocast, naming what to use instead"},
};

const char* meaning_of(Cast cast) { return kCasts[size_t(cast)].text; }
const char* name_of(Accepts a) {
  return std::array{"floating", "any", "integer", "bool"}[size_t(a)];
}
const char* name_of(Result r) {
  return std::array{"as its operands, after casts", "f32 (f64 for f64 operands)", "bool", "i64",
                    "chosen by the call"}[size_t(r)];
}

/// What backward reads: operands by name, then the result and the hidden statistics behind it.
std::vector<std::string> read_by_backward(const OpRow& row) {
  std::vector<std::string> names;
  for (size_t k = 0; k < row.operands.size(); ++k)
    if (row.saves.inputs >> k & 1) names.emplace_back(row.operands[k].name);
  for (size_t k = 0; k < row.outputs.size(); ++k)
    if (row.saves.outputs >> k & 1)
      names.push_back(int(k) >= row.returned
                          ? fmt::format("statistic {}", int(k) - row.returned + 1)
                      : row.returned > 1 ? fmt::format("result {}", k + 1)
                                         : "the result");
  return names;
}

ordered_json record_of(const OpRow& row) {
  ordered_json operands = ordered_json::array();
  for (const Operand& o : row.operands)
    operands.push_back({{"name", o.name},
                        {"accepts", name_of(o.accepts)},
                        {"domain", name_of(o.domain)},
                        {"optional", o.optional}});
  ordered_json attributes = ordered_json::array();
  for (const auto& [name, type, value] : attributes_of(row))
    attributes.push_back({{"name", name}, {"type", type}, {"default", value}});
  return {{"op", row.name},
          {"torch", name_of(row.cast)},
          {"lean", name_of(row.lean)},
          {"why", row.why},
          {"operands", operands},
          {"attributes", attributes},
          {"result", name_of(row.result)},
          {"differentiable", row.differentiable},
          {"backward_reads", read_by_backward(row)},
          {"error", row.error},
          {"one_dtype", row.same_dtype},
          {"keeps_integers", row.integers},
          {"random", row.random},
          {"view", row.view != nullptr}};
}

const OpRow& find_op(const std::string& name) {
  std::vector<std::string_view> names;
  for (const OpRow* row : all_ops()) {
    if (row->name == name) return *row;
    names.push_back(row->name);
  }
  const std::string_view meant = nearest(name, names);
  fail("unknown op '", name, "'; ",
       meant.empty() ? "minim ops lists all there are" : fmt::format("did you mean {}?", meant));
}

void line(std::string_view label, std::string_view text) {
  std::cout << fmt::format("  {:<16}{}\n", label, text);
}

std::string describe(const Operand& o) {
  return fmt::format("{}: {}{}, tested with values '{}'", o.name, name_of(o.accepts),
                     o.optional ? ", optional" : "", name_of(o.domain));
}

std::string describe(Cast cast) { return fmt::format("{}: {}", name_of(cast), meaning_of(cast)); }

/// As in C++, but for the semicolons.
std::vector<std::string> declared(const std::vector<Attribute>& attributes) {
  std::vector<std::string> all;
  for (const auto& [name, type, value] : attributes)
    all.push_back(fmt::format("{} {} = {}", type, name, value));
  return all;
}

void print_row(const OpRow& row, const std::string& policy) {
  std::cout << row.name << '\n';
  if (policy != "lean") line("torch", describe(row.cast));
  if (policy != "torch") line("lean", describe(row.lean));
  line("why", row.why);
  if (row.instead) line("use instead", row.instead);
  for (size_t k = 0; k < row.operands.size(); ++k)
    line(k ? "" : "operands", describe(row.operands[k]));
  const std::vector<std::string> attributes = declared(attributes_of(row));
  for (size_t k = 0; k < attributes.size(); ++k) line(k ? "" : "attributes", attributes[k]);
  line("mixed dtypes", row.same_dtype ? "refused outside autocast" : "promoted");
  line("integers", row.integers ? "stay integers" : "become f32");
  line("result", name_of(row.result));
  const std::vector<std::string> reads = read_by_backward(row);
  line("backward reads", !row.differentiable ? "not differentiable"
                         : reads.empty()     ? "the incoming gradient only"
                                             : fmt::format("{}", fmt::join(reads, ", ")));
  line("error", row.error == 0
                    ? "exact, but for the one rounding of the result"
                    : fmt::format("in fp32 within {} * 2^-24 * (|y| + sum |x|), then rounded once",
                                  row.error));
  if (row.view) line("kernel", "none: a view of the same storage");
  if (row.random) line("random", "yes, from the counter-based generator");
}

void print_table(const std::string& policy) {
  std::vector<std::string> header = {"op"};
  if (policy != "lean") header.emplace_back("torch");
  if (policy != "torch") header.emplace_back("lean");
  header.insert(header.end(), {"domain", "why"});
  Table table(header);
  for (const OpRow* row : all_ops()) {
    std::vector<std::string> cells = {row->name};
    if (policy != "lean") cells.emplace_back(name_of(row->cast));
    if (policy == "lean" || (policy == "both" && row->lean != row->cast))
      cells.emplace_back(name_of(row->lean));
    else if (policy == "both")
      cells.emplace_back();
    cells.insert(cells.end(), {name_of(row->operands[0].domain), row->why});
    table.add(cells);
  }
  std::cout << table.str() << '\n';
  for (const Meaning& m : kCasts) std::cout << fmt::format("{:<9}{}\n", name_of(m.cast), m.text);
  if (policy == "both") std::cout << "The column lean is empty where it agrees with torch.\n";
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

void print_markdown() {
  std::cout << "# The ops\n\n"
               "Written by `minim ops --markdown` from `ops/ops.def`. Under autocast a row's cast "
               "decides the dtype of its floating operands and of its result:\n\n";
  for (const Meaning& m : kCasts) std::cout << fmt::format("- `{}`: {}\n", name_of(m.cast), m.text);
  std::cout
      << "\nKernels of floating operands compute in fp32 (f64 for f64) whatever the cast. An "
         "fp32 result is within "
         "c * 2^-24 * (\\|y\\| + sum \\|x\\|) of the exact one, where y is a sum of "
         "products, of x, "
         "however many they are; 16-bit results are that, rounded once.\n\n"
         "A call takes an op's attributes after its operands, by name: `softmax(x, {.dim = 0})`. "
         "After `using namespace minim` the bare name `std` means the standard library: write "
         "`minim::std(x)`.\n\n"
         "| op | operands | attributes | torch | lean | result | backward reads | c | why this "
         "cast |\n"
         "|---|---|---|---|---|---|---|---|---|\n";
  for (const OpRow* row : all_ops()) {
    std::vector<std::string> operands;
    for (const Operand& o : row->operands)
      operands.push_back(fmt::format("{}{}", o.name, o.optional ? "?" : ""));
    const std::vector<std::string> read = read_by_backward(*row);
    const std::string reads =
        row->differentiable
            ? read.empty() ? "the gradient only" : fmt::format("{}", fmt::join(read, ", "))
            : "no gradient";
    std::cout << fmt::format(
        "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n", row->name, fmt::join(operands, ", "),
        fmt::join(declared(attributes_of(*row)), "; "), name_of(row->cast), name_of(row->lean),
        name_of(row->result), reads, row->error, escaped(row->why));
  }
}

void print_torch_diff() {
  Table table({"PyTorch, on CUDA", "there", "here", "why"});
  std::set<const OpRow*> same;
  for (const TorchCasts& entry : torch_casts()) {
    if (entry.row && row_of(entry).cast == entry.cast) same.insert(&row_of(entry));
    if (!entry.reason) continue;
    std::istringstream names(entry.names);
    for (std::string name; names >> name;)
      table.add(
          {name, name_of(entry.cast),
           entry.row ? fmt::format("{} ({})", name_of(row_of(entry).cast), entry.row) : "none",
           entry.reason});
  }
  std::cout << table.str()
            << fmt::format(
                   "\n{} rows have the cast of PyTorch's lists. Rows that are on none are keep, as "
                   "PyTorch's unlisted ops are.\n`minim ops` shows where the policy lean differs "
                   "from torch.\n",
                   same.size());
}

}  // namespace

int cmd_ops(Args args) {
  Options options;
  const std::vector<Setting> settings = settings_of(options);
  const auto flags = read_flags(settings, args, "ops",
                                "Lists the operations and what autocast does to each, and why.");
  if (!flags) return 0;
  assign_all(settings, std::span(&*flags, 1));
  if (options.json && options.markdown) fail("--json and --markdown exclude each other; give one");
  if (options.markdown && !options.op.empty())
    fail("--markdown writes the whole page and takes no --op; leave one out");
  if (options.diff_torch && (options.json || options.markdown || !options.op.empty()))
    fail("--diff-torch is a table of its own; give it alone");
  if (options.diff_torch && options.policy == "lean")
    fail("--diff-torch is of the policy torch; leave --policy lean out");
  if (options.diff_torch) {
    print_torch_diff();
  } else if (options.json && !options.op.empty()) {
    std::cout << record_of(find_op(options.op)).dump(2) << '\n';
  } else if (options.json) {
    ordered_json all = ordered_json::array();
    for (const OpRow* row : all_ops()) all.push_back(record_of(*row));
    std::cout << all.dump(2) << '\n';
  } else if (options.markdown) {
    print_markdown();
  } else if (options.op.empty()) {
    print_table(options.policy);
  } else {
    print_row(find_op(options.op), options.policy);
  }
  return 0;
}

}  // namespace minim
